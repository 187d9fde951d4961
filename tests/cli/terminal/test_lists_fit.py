"""Every list of the command line fits terminals of 80 and 120 columns with several people, and is whole elsewhere."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli import main
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running, running

NAME = "gpt2-medium-long-warmup-of-0.05-and-a-tail"
GONE = "deleted-since-its-labels-were-wrong"
PERSON = "maximiliane.brandenburg"
PROJECT = "language-models-of-the-lab"
LISTS: dict[str, tuple[str, ...]] = {
    "runs": ("runs",),
    "runs of a project": ("runs", "--project", PROJECT, "--filter", "val/acc>0.1"),
    "deleted runs": ("runs", "--deleted"),
    "nodes": ("nodes",),
    "alerts": ("alert", "list"),
    "links": ("share", "list"),
    "tokens": ("token", "list"),
    "join tokens": ("token", "--join", "--list"),
    "people": ("users", "list"),
    "secrets": ("secret", "list"),
    "audit": ("audit",),
    "checkpoints": ("checkpoints", NAME),
    "deleted checkpoints": ("checkpoints", NAME, "--deleted"),
    "retention": ("retention", "show", "--run", NAME),
    "resume plan": ("resume", NAME, "--dry-run"),
    "series": ("metrics", NAME),
    "found lines": ("logs", "--search", "loss"),
    "comparison": ("compare", NAME, "second"),
}
WITHOUT_TERMINAL = 0


class Terminal(io.StringIO):
    """What stands where a terminal would."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dashboard of several people, with one of each thing that is listed, all with long names."""
    with running(tmp_path_factory.mktemp("lists") / "data") as dashboard:
        fill(dashboard, dashboard.node("a-node-with-quite-a-long-name.example", slots=2))
        yield dashboard


def fill(dashboard: Running, node: FakeNode) -> None:
    http = browser_of(dashboard, person(dashboard.service, PERSON, Role.ADMIN))

    def post(path: str, **body: object) -> str:
        answer = http.post(path, json=body)
        assert answer.is_success, answer.text
        return str(answer.json().get("id"))

    spec = {"target": "image_classifier", "gpus_per_node": 1, "project": PROJECT}
    for name in (GONE, "second", NAME):
        run_id = post("/api/runs", **spec, name=name)
        task = node.task()
        node.report(task, "running")
        node.log_points(task, 0, val__acc=[(1000, 0.25, 1.0)], train__loss=[(123456, 0.0123456789, 2.0)])
        node.append(task, "logs/rank0.out", 0, 0, b"epoch 1 loss 0.5 " + b"and more words " * 20 + b"\n")
        for file in ("first.pt", "last.pt"):
            node.store_checkpoint(task, f"{name} {file}".encode(), f"work/checkpoints/a-name-that-does-not-end/{file}")
        node.report(task, "failed", exit_code=1)
    post("/api/alerts", rule="failed", target="https://8.8.8.8/hooks/with/a/long/address", project=PROJECT)
    post("/api/shared-links", runs=[run_id])
    post("/api/join-tokens", name="rack b2 of the room with the many GPUs")
    assert dashboard.http.post("/api/tokens", json={"name": "nightly-benchmarks", "scope": "launch"}).is_success
    assert dashboard.http.put("/api/secrets/HUGGING_FACE_TOKEN", json={"value": "hf_AbCdEfGhIjKl"}).is_success
    (_, first) = http.get(f"/api/runs/{run_id}/checkpoints").json()
    assert http.delete(f"/api/checkpoints/{first['id']}").is_success
    gone = dashboard.http.get("/api/named-runs", params={"name": GONE}).json()["id"]
    assert http.delete(f"/api/runs/{gone}").is_success


@pytest.fixture
def printed(lab: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Run a command on a terminal of so many columns; returns its lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANKZERO_URL", lab.url)
    monkeypatch.setenv("RANKZERO_TOKEN", lab.token)
    monkeypatch.setenv("TERM", "xterm")

    def run(columns: int, *words: str) -> list[str]:
        out = Terminal() if columns else io.StringIO()
        monkeypatch.setenv("COLUMNS", str(columns or 80))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            assert main.run(list(words)) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()

    return run


def width_of(title: str, lines: list[str]) -> int:
    """The width of a column, which the next title or the end of the longest line ends."""
    head = next(line for line in lines if title in line.split())
    begin = head.index(title)
    following = re.search(r"\s\s(?=\S)", head[begin:])
    return following.end() - 2 if following else max(map(len, lines)) - begin


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("which", LISTS)
def test_every_list_fits_the_terminal(printed: Callable[..., list[str]], which: str, columns: int) -> None:
    lines = printed(columns, *LISTS[which])
    assert lines and max(map(len, lines)) <= columns, lines
    if any("name" in line.split() for line in lines):
        assert width_of("name", lines) >= 12


@pytest.mark.parametrize("which", LISTS)
def test_every_list_is_whole_where_there_is_no_terminal(printed: Callable[..., list[str]], which: str) -> None:
    lines, wide = printed(WITHOUT_TERMINAL, *LISTS[which]), printed(2000, *LISTS[which])
    assert words(lines) == words([line for line in wide if set(line.strip()) != {"─"}])


def words(lines: list[str]) -> list[str]:
    """The words without their digits: times pass."""
    return re.sub(r"\d", "", " ".join(lines)).split()


def test_runs_of_several_people_keep_id_name_state_and_person_on_80_columns(
    printed: Callable[..., list[str]],
) -> None:
    lines = printed(80, "runs")
    titles = next(line for line in lines if "name" in line.split()).split()
    assert {"id", "name", "state", "step", "loss", "by"} <= {*titles} and "samples/s" not in titles
    assert re.search("A wider terminal also shows .*samples/s", " ".join(lines))
    assert [line.split()[-2] for line in lines if "123 456" in line] == ["0.01235", "0.01235"], "figures stay whole"


def test_every_module_that_prints_tables_has_its_list_here() -> None:
    sources = Path(main.__file__).parent / "commands"
    printing = {path.stem for path in sources.rglob("*.py") if re.search(r"print_(list|table)\(", path.read_text())}
    listing = {
        "runs", "nodes", "alerts", "export", "tokens", "users", "secrets", "audit", "checkpoints", "output", "compare",
        "retention", "resume_plan",
    }  # fmt: skip
    figures = {"node_installation", "preflight", "importing", "performance", "studies", "sync", "tensors"}
    assert printing == listing | figures, "add the list to LISTS, or name why it is a table of figures"
