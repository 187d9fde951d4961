"""Commands find runs by what people call them, act on several, and ask before what cannot be undone."""

from __future__ import annotations

import io
import sys
from urllib.parse import parse_qs

from tests.dashboard.fake_dashboard import RUN


def two_runs(fake) -> None:
    fake.runs = [RUN | {"tags": []}, RUN | {"tags": [], "id": "klmnopqrst", "name": "second"}]


def paths(fake, method: str) -> list[str]:
    return [path for verb, path in fake.asked if verb == method]


def test_run_is_found_by_its_name_and_as_the_latest(rankzero, fake) -> None:
    for word in ("first light", "latest", "abcdefghij"):
        assert rankzero("stop", word)[0] == 0
    assert paths(fake, "POST") == ["/api/runs/abcdefghij/stop"] * 3
    code, _, err = rankzero("stop", "unknown")
    assert (code, err) == (1, "There is no run 'unknown'.\n")


def test_delete_without_a_terminal_asks_for_yes(rankzero, fake, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = rankzero("delete", "abcdefghij")
    assert (code, out) == (2, "")
    assert err == (
        "Nothing was done: to delete run abcdefghij removes logs, points and checkpoints, and can be undone for "
        "a week; add --yes to do it.\n"
    )
    assert rankzero("delete", "abcdefghij", "--json")[0] == 2
    assert paths(fake, "DELETE") == []
    assert rankzero("delete", "abcdefghij", "--yes") == (
        0,
        "Run abcdefghij is deleted (4 KiB). Can be restored until 2027-01-15 08:00:00 UTC: "
        "`rankzero delete --undo abcdefghij`.\n",
        "",
    )
    assert paths(fake, "DELETE") == ["/api/runs/abcdefghij?now=false"]


def test_deleted_runs_are_listed_brought_back_by_their_name_and_deleted_for_good(rankzero, fake) -> None:
    gone = {"id": "zzzzzzzzzz", "name": "old", "project": "default", "deleted_by": "ana", "size_bytes": 4096}
    fake.deleted = [gone | {"deleted_at": 1_799_000_000.0, "kept_until": 1_800_000_000.0}]
    code, out, _ = rankzero("runs", "--deleted")
    assert code == 0 and out.splitlines()[1].split()[:3] == ["zzzzzzzzzz", "old", "default"] and "ana" in out
    for word in ("old", "zzz", "zzzzzzzzzz"):
        assert rankzero("delete", "--undo", word)[0] == 0
    assert paths(fake, "POST") == ["/api/runs/zzzzzzzzzz/restore"] * 3
    code, _, err = rankzero("delete", "--undo", "abcdefghij")
    assert (code, err) == (1, "There is no deleted run 'abcdefghij'; `rankzero runs --deleted` lists them.\n")
    for wrong in (["--undo"], ["--undo", "--now", "old"], ["--undo", "--filter", "name:old"]):
        assert rankzero("delete", *wrong)[0] == 2
    assert rankzero("delete", "--now", "zzzzzzzzzz", "abcdefghij", "--yes")[0] == 0
    assert paths(fake, "DELETE") == ["/api/deleted-runs/zzzzzzzzzz?now=true", "/api/runs/abcdefghij?now=true"]


def test_several_runs_and_all_of_a_search_are_acted_on_once(rankzero, fake) -> None:
    two_runs(fake)
    code, out, _ = rankzero("stop", "abcdefghij", "--filter", "state:running")
    assert code == 0 and out.count("Run abcdefghij is running.") == 2
    assert paths(fake, "POST") == ["/api/runs/abcdefghij/stop", "/api/runs/klmnopqrst/stop"]
    assert rankzero("archive", "abcdefghij", "klmnopqrst")[0] == 0
    assert rankzero("tag", "abcdefghij", "klmnopqrst", "+good", "-bad")[0] == 0
    assert len(paths(fake, "PATCH")) == 4
    assert rankzero("delete", "--filter", "state:failed", "--yes")[0] == 0
    assert len(paths(fake, "DELETE")) == 2


def test_no_run_is_wrong_usage_and_no_match_is_a_failure(rankzero, fake) -> None:
    assert rankzero("delete", "--yes")[0] == 2
    fake.runs = []
    assert rankzero("delete", "--filter", "state:failed", "--yes") == (1, "", "No run matches.\n")


def test_refused_run_holds_up_no_other(rankzero, fake) -> None:
    two_runs(fake)
    fake.refusal = (409, {"field": None, "message": "It is running: stop it first."})
    code, out, err = rankzero("delete", "abcdefghij", "klmnopqrst", "--yes")
    assert (code, out, err) == (1, "", "It is running: stop it first.\n" * 2)
    assert len(paths(fake, "DELETE")) == 2


def test_table_in_a_pipe_has_one_line_a_run_and_no_frames(rankzero, fake) -> None:
    two_runs(fake)
    fake.runs[0]["step"] = 12_345
    fake.runs[1]["name"] = "n" * 300
    code, out, _ = rankzero("runs")
    head, first, second = out.splitlines()
    assert code == 0 and head.split()[:3] == ["id", "name", "project"]
    assert first.startswith("abcdefghij  first light") and "12 345" in first
    assert second.split()[1] == "n" * 300
    assert not set(out) & set("─━│┃\u202f")


def test_help_is_in_groups_and_says_nothing_of_exceptions(rankzero) -> None:
    code, out, _ = rankzero("-h")
    assert code == 0 and out.index("Train:") < out.index("launch ") < out.index("Nodes and server:")
    for command in ("logs", "compare", "delete", "tag"):
        code, out, _ = rankzero(command, "-h")
        assert code == 0 and "Raises" not in out


def test_ones_own_runs_are_listed_and_stopped(rankzero, fake, monkeypatch) -> None:
    two_runs(fake)
    fake.runs[0]["by"], fake.runs[1]["by"] = "ana", "ivo"
    code, out, _ = rankzero("runs", "--mine", "--filter", "tag:a or tag:b")
    assert code == 0 and out.splitlines()[0].endswith("by") and out.splitlines()[1].endswith("ana")
    assert parse_qs(paths(fake, "GET")[-1].partition("?")[2])["filter"] == ["by:me tag:a or by:me tag:b"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "to stop 2 runs ends their trainings" in rankzero("stop", "--mine")[2]
    assert rankzero("stop", "--mine")[0] == 2 and paths(fake, "POST") == []
    assert rankzero("stop", "--mine", "abcdefghij", "--yes")[0] == 2
    assert rankzero("stop", "--mine", "--yes")[0] == 0
    assert paths(fake, "POST") == ["/api/runs/abcdefghij/stop", "/api/runs/klmnopqrst/stop"]
    asked = parse_qs(paths(fake, "GET")[-1].partition("?")[2])
    assert asked["filter"] == ["by:me"] and asked["state"] == ["queued", "starting", "running", "stopping"]


def test_nothing_of_ones_own_to_stop_is_no_failure_but_a_search_that_matches_nothing_is(rankzero, fake) -> None:
    fake.runs = []
    assert rankzero("stop", "--mine") == (0, "None of your runs is live.\n", "")
    assert rankzero("stop", "--mine", "--yes", "--json") == (0, "[]\n", "None of your runs is live.\n")
    assert rankzero("stop", "--mine", "--filter", "tag:a", "--yes") == (1, "", "No live run of yours matches.\n")
    assert paths(fake, "POST") == []
