"""`rankzero runs, show, stop, resume`: list runs and change their desired state, singly or all of a search."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.following import describe
from cli.server.options import Data, Json, RunId, complete_filter, complete_run, ids_of_runs, run_path, server_at
from cli.terminal import (
    CommandFailed,
    ask_or_tell,
    print_facts,
    print_json,
    print_list,
    print_outcome,
    printable,
    say,
    warn,
    with_person,
)
from domain.text import formats
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import plural

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own runs.")]
ChosenRuns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN…",
        help="Ids or their beginnings, names, or `latest`.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="QUERY",
        help="All runs that match, as in `runs --filter`.",
        autocompletion=complete_filter,
    ),
]
LIVE = ("queued", "starting", "running", "stopping")


def runs(
    state: Annotated[list[str] | None, typer.Option(help="Only runs in this state; repeatable.")] = None,
    project: Annotated[str | None, typer.Option(help="Only runs of this project.")] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help='Only runs that match, as in: state:failed lr>0.001 "out of memory".',
            autocompletion=complete_filter,
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="A field or series; -FIELD sorts the other way round.", show_default="newest first"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 200,
    mine: Mine = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted runs that you can restore.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first or sorted."""
    if deleted:
        return print_deleted(server_at(data), as_json)
    point_at_errors(search, sort)
    search = narrowed(search, mine)
    server, listed, options = server_at(data), list[dict[str, Any]](), {"filter": search, "sort": sort}
    while len(listed) < limit:
        page = min(limit - len(listed), PAGE)
        answer = server.get("/api/runs", state=state, project=project, limit=page, offset=len(listed), **options)
        listed += answer
        if len(answer) < page:
            break
    metrics = listed[0].get("metrics", ()) if listed else ()
    is_all = not (search or state or project)
    none = "No runs. Launch one with `rankzero launch TARGET` or in the browser." if is_all else "No run matches."
    print_list(with_person(columns_of(metrics, time.time()), listed), listed, as_json, none)


DELETED_PATH = "/api/deleted-runs"


def print_deleted(server: ServerClient, as_json: bool) -> None:
    """Print the deleted runs that can be restored."""
    now = time.time()
    columns: Columns[Any] = [
        Column("id"), Column("name"), Column("project"),
        Column("deleted", lambda run: formats.ago(run.deleted_at, now)),
        Column("by", lambda run: run.deleted_by or formats.UNKNOWN),
        Figure("size", lambda run: formats.size(run.size_bytes)),
        Column("restorable until (UTC)", lambda run: formats.clock_time(run.kept_until)),
    ]  # fmt: skip
    print_list(columns, server.get(DELETED_PATH), as_json, "There are no deleted runs to restore.")


def point_at_errors(search: str | None, sort: str | None) -> None:
    """Check the search and the order, and point at the word that is wrong. Raises CommandFailed."""
    if not search and not sort:
        return
    from domain.search.fields import parse_sort
    from domain.search.parser import parse
    from domain.search.query import QueryError

    text = search or ""
    try:
        parse(text, now=0.0)
        text = sort or ""
        parse_sort(text)
    except QueryError as error:
        warn(text)
        warn(" " * error.start + "^" * max(1, error.end - error.start))
        raise CommandFailed(f"{error}{'' if str(error).endswith('?') else '.'}", 2) from None


def columns_of(metrics: Iterable[str], now: float) -> Columns[Any]:
    """Return the columns of the list of runs, with these of their metrics."""
    return [
        Column("id"), Column("name"), Column("project"), Column("state", _state),
        Figure("ranks", lambda run: run.world_size), Figure("step", lambda run: formats.count(run.step)),
        *(Figure(metric.replace(":", " ", 1), partial(_metric, metric)) for metric in metrics),
        Figure("loss", lambda run: formats.number(run.last_loss, 4)),
        Figure("samples/s", lambda run: formats.number(run.throughput)),
        Figure("time", lambda run: formats.duration(time_spent(run, now))),
        Column("started", lambda run: formats.ago(run.started_at, now) if run.started_at else formats.UNKNOWN),
    ]  # fmt: skip


def _state(run: dict[str, Any]) -> str:
    flags = {"lost contact": run.get("lost_contact"), "sending": run.get("delivery")}
    state = " ".join([run["state"], *(f"({flag})" for flag, holds in flags.items() if holds)])
    return f"{state}: {run['reason']}" if run.get("reason") else state


def _metric(name: str, run: dict[str, Any]) -> str:
    return formats.number(run["metrics"][name], 4)


def time_spent(run: dict[str, Any], now: float) -> float | None:
    """Return the seconds from start to end, or to now."""
    return None if run["started_at"] is None else (run["ended_at"] or now) - run["started_at"]


def show(run: RunId, data: Data = None, as_json: Json = False) -> None:
    """Show a run in full."""
    server = server_at(data)
    shown = server.get(run_path(run))
    preflight = server.get(run_path(run, "preflight")) if shown["nodes"] > 1 else None
    if as_json:
        print_json(shown | {"preflight": preflight})
        return
    print_run(shown, server.address.url)
    if preflight is not None and shown["reason"] == "preflight":
        from cli.commands.installation.preflight import print_matrix

        print_matrix(preflight)


def by_words(run: dict[str, Any]) -> str | None:
    """Return who launched a run, and through what; None if unknown."""
    return formats.signature(run.get("by"), run.get("via")) or None


def watched_words(watched: dict[str, Any] | None) -> str | None:
    """Return where a run that somebody else started runs, and its command; None for one that was launched."""
    if watched is None:
        return None
    scheduler = f" ({watched['scheduler']})" if watched["scheduler"] else ""
    started = f"on {watched['host']}, started by {watched['account']}{scheduler}"
    return f"{started}: {watched['command']}" if watched["command"] else started


def environment_words(environment: dict[str, Any] | None) -> str | None:
    """Return the environment of a run's lock in words: uv.lock 3f2a…, ready."""
    if environment is None:
        return None
    return f"{' '.join(filter(None, (environment['kind'], environment['hash'])))}, {environment['state']}"


def print_run(run: dict[str, Any], url: str) -> None:
    """Print a run's properties, one per line."""
    now = time.time()
    print_facts(
        [
            ("run", f"{run['id']} ({run['name']}), project {run['project']}"),
            ("state", describe(run, now)),
            ("expected", run.get("expected_start_at") and expected(run["expected_start_at"], now)),
            ("reason", run["reason"]),
            ("message", run["message"]),
            ("tags", ", ".join(run.get("tags") or ()) or None),
            ("note", run.get("note")),
            ("baseline", baseline_words(run)),
            ("beware", _finding(run)),
            ("next step", run.get("next_step")),
            ("ready to launch", fix["url"] if (fix := run.get("fix")) else None),
            ("by", by_words(run)),
            ("watched", watched_words(run.get("watched"))),
            ("attempt", run["attempt"]),
            ("environment", environment_words(run.get("environment"))),
            ("world size", f"{run['world_size']} on {formats.plural(run['nodes'], 'node')}"),
            ("epoch", _epoch_words(run)),
            ("batch size", run["global_batch_size"] and f"{run['global_batch_size']} over all ranks"),
            ("learning rate", run["lr"] and _rate_words(run)),
            ("created", formats.ago(run["created_at"], now)),
            ("started", run["started_at"] and formats.ago(run["started_at"], now)),
            ("took" if run["ended_at"] else "so far", formats.duration(time_spent(run, now))),
            ("tensorboard", f"{url}/tensorboard/{run['id']}/"),
        ]
    )
    for line in str((run.get("error") or {}).get("traceback") or "").splitlines():
        print(f"  {printable(line)}")


def _finding(run: dict[str, Any]) -> str | None:
    """Return the first finding of a run, unless its message says the same."""
    from domain.views import states

    finding = run.get("finding") or ""
    return None if states(run["message"] or "", finding.partition(": ")[2]) else finding or None


def _rate_words(run: dict[str, Any]) -> str:
    rate, before = map(formats.learning_rate, (run["lr"], run["base_lr"]))
    return f"{rate} (before scaling {before})"


def _epoch_words(run: dict[str, Any]) -> str | None:
    current, total = run.get("current_epoch", run["epoch"]), run.get("total_epochs")
    return None if current is None else formats.number(current) + (f" of {total}" if total else "")


def baseline_words(run: dict[str, Any]) -> str | None:
    """Return the result beside that of the project's baseline in words; None where it has none."""
    against = run.get("against_baseline")
    if run.get("baseline") or not against:
        return f"of project {run['project']}" if run.get("baseline") else None
    name = f"{against['name']} ({against['run_id']})"
    better = against["better_percent"]
    if better is None:
        return name
    comparison = f"{abs(better):.2g} % {'better' if better > 0 else 'worse'} than" if better else "equal to"
    return f"{against['metric']} {formats.number(against['value'], 4)}, {comparison} {name}"


def expected(start_at: float, now: float) -> str:
    """Return the expected start of a waiting run in words."""
    left_s = start_at - now
    return f"to start in about {formats.duration(left_s)}" if left_s > 0 else "to start any moment"


def stop(
    context: typer.Context,
    runs: ChosenRuns = None,
    search: Filter = None,
    mine: Annotated[bool, typer.Option("--mine", help="All your live runs, or those of them that match.")] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; shown to the run's owner.", show_default=False)
    ] = None,
    yes: Yes = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Ask runs to end: SIGTERM, and after its grace period SIGKILL. Raises CommandFailed."""
    server = server_at(data)
    if mine and runs:
        raise CommandFailed("--mine selects your live runs: name none with it.", 2)
    if mine:
        ids = _own_live(server, search, as_json)
        if ids:
            confirm(server, ids, "stop", yes, "ends its training" if len(ids) == 1 else "ends their trainings")
    else:
        ids = chosen(context, server, runs, search)
        if not yes and sys.stdin.isatty():
            ask_or_tell(whose(server, "stop", ids))
    body = {"reason": reason} if reason else None
    for_each(ids, lambda run_id: server.post(run_path(run_id, "stop"), body), _stop_sentence, as_json)


def _own_live(server: ServerClient, search: str | None, as_json: bool) -> list[str]:
    """Return the ids of your live runs; says so where none is. Raises CommandFailed for a search that matches none."""
    ids = matching(server, narrowed(search, mine=True), LIVE)
    if not ids and search:
        raise CommandFailed("No live run of yours matches.")
    if not ids:
        (warn if as_json else say)("None of your runs is live.")
    return ids


def _stop_sentence(run: dict[str, Any]) -> str:
    if run.get("kill_at"):
        silent = f" It {run['waiting_for']}." if run.get("silent_nodes") else ""
        return f"Stopping run {run['id']}: it has up to {run['spec']['stop_grace_s']:g} s to save and exit.{silent}"
    if sending := run.get("delivery"):
        left = formats.size(sending["total_bytes"] - sending["sent_bytes"])
        return f"Run {run['id']} is {run['state']}; what it has not sent ({left}) stays on its nodes."
    verb = "has already" if run["state"] in ("succeeded", "failed") else "is"
    return f"Run {run['id']} {verb} {run['state']}."


def resume(
    run: RunId,
    checkpoint: Annotated[str | None, typer.Option(help="Its name.", show_default="the latest complete one")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would differ from when the checkpoint was written.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Open another attempt of an ended run from its last complete checkpoint."""
    if dry_run:
        from cli.commands.runs.resume_plan import print_plan

        plan = server_at(data).get(run_path(run, "resume"), checkpoint=checkpoint)
        return print_json(plan) if as_json else print_plan(plan)
    resumed = server_at(data).post(run_path(run, "resume"), {"checkpoint": checkpoint})
    print_outcome(resumed, as_json, f"Run {run} is {resumed['state']}, attempt {resumed['attempt']}.")


# The runs that a command acts on: named one by one, or all that a search finds; and the question before it acts.

PAGE = 1000
"""Runs that are asked for at once."""
NAMED_IN_QUESTION = 5


def chosen(context: typer.Context, server: ServerClient, words: list[str] | None, search: str | None) -> list[str]:
    """Return the ids of the named runs and of those that match, each once. Raises CommandFailed without any."""
    if not words and not search:
        raise CommandFailed(f"Name a run, or choose some with --filter. `{context.command_path} --help` shows how.", 2)
    ids = ids_of_runs(context, words or [])
    if search:
        ids += matching(server, search)
    if not ids:
        raise CommandFailed("No run matches.")
    return list(dict.fromkeys(ids))


def narrowed(search: str | None, mine: bool) -> str | None:
    """Return the search, among your own runs where `mine`."""
    if not mine:
        return search
    from domain.search.parser import mine as among_mine

    return among_mine(search or "")


def matching(server: ServerClient, search: str | None, states: Sequence[str] = ()) -> list[str]:
    """Return the ids of all runs that match a search and are in these states, by default in any, newest first."""
    ids: list[str] = []
    while True:
        page = server.get("/api/runs", filter=search, state=list(states) or None, limit=PAGE, offset=len(ids))
        ids += [run["id"] for run in page]
        if len(page) < PAGE:
            return ids


def confirm(server: ServerClient, ids: list[str], action: str, yes: bool, rule: str = "cannot be undone") -> None:
    """Ask before `action` is done to the runs. Raises CommandFailed without a terminal, typer.Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        subject = f"run {ids[0]}" if len(ids) == 1 else plural(len(ids), "run")
        raise CommandFailed(f"Nothing was done: to {action} {subject} {rule}; add --yes to do it.", 2)
    names = [f"{run_id} ({printable(server.get(run_path(run_id))['name'])})" for run_id in ids[:NAMED_IN_QUESTION]]
    more = f" and {len(ids) - len(names)} more" if len(ids) > len(names) else ""
    others = f"{sentence} " if (sentence := whose(server, action, ids)) else ""
    typer.confirm(f"{others}{action.capitalize()} {', '.join(names)}{more}? To do so {rule}", abort=True, err=True)


def whose(server: ServerClient, action: str, ids: list[str]) -> str:
    """Return whose runs the action would reach beside yours, in a sentence; empty where all are yours."""
    requests = [{"action": action, "runs": ids[start : start + PAGE]} for start in range(0, len(ids), PAGE)]
    return " ".join(filter(None, (server.post("/api/bulk-actions/consequence", body)["sentence"] for body in requests)))


def for_each(
    ids: list[str], act: Callable[[str], dict[str, Any]], tell: Callable[[dict[str, Any]], str], as_json: bool
) -> None:
    """Do it to each run and say so; one that is refused holds up no other.

    Prints one document, or a list for several. Raises CommandFailed, or Exit(1) after the last of several runs."""
    if len(ids) == 1:
        document = act(ids[0])
        return print_json(document) if as_json else say(tell(document))
    documents, failures = list[dict[str, Any]](), 0
    for run_id in ids:
        try:
            documents.append(act(run_id))
        except CommandFailed as refusal:
            failures += 1
            warn(str(refusal))
        else:
            if not as_json:
                say(tell(documents[-1]))
    if as_json:
        print_json(documents)
    if failures:
        raise typer.Exit(1)
