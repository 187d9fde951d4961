"""What differs between two snapshots: a patch that git applies, in bounded time, whatever the archives hold."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.snapshots import differences
from dashboard.snapshots.archive import pack
from dashboard.snapshots.differences import TIME_LIMIT_S, CodeDifference, FileChange, compare
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import select
from tests.dashboard.checkouts import write

MIB = 1024 * 1024
PATIENCE_S = 300.0
"""Instead of the limit of three seconds, in which a machine may stand still."""


def tar(path: Path, files: dict[str, bytes | str], executable: frozenset[str] = frozenset()) -> Path:
    """An archive of files; a `str` is where a link points."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if name in executable else 0o644
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                made.addfile(entry)
            else:
                entry.size = len(content)
                made.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def differ(tmp_path):
    def between(
        old: dict[str, bytes | str], new: dict[str, bytes | str], time_limit_s: float = PATIENCE_S
    ) -> CodeDifference:
        return compare(tar(tmp_path / "old", old), tar(tmp_path / "new", new), time_limit_s)

    return between


def only(difference: CodeDifference) -> FileChange:
    (file,) = difference.files
    return file


def test_the_same_code_has_no_difference(differ):
    files = {"train.py": b"print(1)\n", "data": "elsewhere"}
    assert differ(files, files) == CodeDifference()
    assert differ(files, files).diff == ""


def test_each_kind_of_change_is_named(differ):
    difference = differ(
        {"a.py": b"1\n2\n", "gone.py": b"x\n", "old/name.py": b"moved\n", "same": b"s"},
        {"a.py": b"1\n3\n", "come.py": b"y\n", "new/name.py": b"moved\n", "same": b"s"},
    )
    changes_by_name = {file.name: (file.kind, file.lines_added, file.lines_removed) for file in difference.files}
    assert changes_by_name == {
        "a.py": ("changed", 1, 1),
        "come.py": ("added", 1, 0),
        "gone.py": ("removed", 0, 1),
        "new/name.py": ("renamed", 0, 0),
    }
    assert difference.files[-1].old_name == "old/name.py"
    assert "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n" in difference.diff
    assert "rename from old/name.py\nrename to new/name.py\n" in difference.diff


def test_an_empty_file_is_no_renamed_one(differ):
    difference = differ({"old/__init__.py": b""}, {"new/__init__.py": b""})
    assert [(file.name, file.kind) for file in difference.files] == [
        ("new/__init__.py", "added"),
        ("old/__init__.py", "removed"),
    ]


def test_a_binary_or_very_large_file_is_only_named(differ):
    binary = only(differ({"w.pt": b"a\0b"}, {"w.pt": b"a\0c!"}))
    assert (binary.omitted, binary.lines, binary.old_size_bytes, binary.new_size_bytes) == (
        "binary",
        "",
        3,
        4,
    )
    assert "Binary files a/w.pt and b/w.pt differ" in binary.diff
    large = only(differ({"log": b"x\n" * MIB}, {"log": b"x\n" * MIB + b"y\n"}))
    assert (large.omitted, large.lines_added) == ("larger than 1 MiB", 0)


def test_the_mode_of_a_very_large_file_is_in_the_patch(tmp_path):
    files = {"run.sh": b"x\n" * MIB}
    archives = tar(tmp_path / "old", files), tar(tmp_path / "new", files, frozenset(files))
    change = only(compare(*archives, PATIENCE_S))
    assert (change.omitted, change.diff) == (
        None,
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n",
    )


def test_a_link_that_became_a_binary_file_is_only_named(differ):
    change = only(differ({"w": "elsewhere"}, {"w": b"a\0b"}))
    assert (change.omitted, change.diff) == ("binary", "Binary files a/w and b/w differ\n")


def test_a_file_without_lines_leaves_the_patch_of_the_others_valid(differ, tmp_path):
    difference = differ({"a.py": b"1\n", "w.pt": b"a\0b", "z": b"1"}, {"a.py": b"2\n", "w.pt": b"a\0c", "z": b"2"})
    for name, content in (("a.py", b"1\n"), ("w.pt", b"a\0b"), ("z", b"1")):
        (tmp_path / name).write_bytes(content)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=difference.diff.encode(), check=True, timeout=PATIENCE_S)
    assert [(tmp_path / name).read_bytes() for name in ("a.py", "w.pt", "z")] == [b"2\n", b"a\0b", b"2"]


def test_a_patch_depends_on_no_settings_of_git(differ, tmp_path, monkeypatch):
    """Neither those of the person who started the dashboard nor those that the code brings."""
    trees = {"a.txt": b"1\r\n", ".gitattributes": b"*.txt text -diff"}, {"a.txt": b"2\r\n", ".gitattributes": b"*"}
    plain = differ(*trees)
    (tmp_path / ".gitconfig").write_text("[diff]\n noprefix = true\n external = false\n[color]\n ui = always\n")
    write(tmp_path / ".config" / "git", attributes="*.txt -diff\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert differ(*trees) == plain
    assert "-1\r\n+2\r\n" in plain.diff


def test_without_git_files_are_named_and_it_says_so(differ, monkeypatch):
    monkeypatch.setenv("PATH", "")
    difference = differ({"a.py": b"1\n", "gone": b"x"}, {"a.py": b"2\n"})
    assert [(file.name, file.kind) for file in difference.files] == [("a.py", "changed"), ("gone", "removed")]
    assert {file.omitted for file in difference.files} == {differences.NO_GIT} and not difference.truncated


def test_what_git_does_not_take_is_named_with_its_reason(differ):
    (reason,) = {file.omitted for file in differ({"a//b": b"1", "c": b"1"}, {"a//b": b"2", "c": b"2"}).files}
    assert reason.startswith("git could not compare it: ") and "path component" in reason


def test_bytes_that_are_no_text_are_replaced(differ):
    assert "-caf\ufffd\n+cafe\n" in differ({"a": b"caf\xe9\n"}, {"a": b"cafe\n"}).diff


def test_links_are_compared_by_where_they_point(differ):
    changed = only(differ({"data": "old"}, {"data": "new"}))
    assert "-old\n\\ No newline at end of file\n+new\n" in changed.lines
    replaced = only(differ({"data": "old"}, {"data": b"old"}))
    assert "deleted file mode 120000" in replaced.diff and "new file mode 100644" in replaced.diff


def test_a_link_out_of_the_archive_is_never_followed(differ, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    difference = differ({"a": b"1"}, {"a": b"1", "b": str(secret), "c": "../secret"})
    assert "do not tell" not in difference.diff and str(secret) in difference.diff


def test_beyond_its_bounds_files_are_still_named(differ, monkeypatch):
    many = {f"{i:03}.py": b"x\n" * 100 for i in range(50)}
    monkeypatch.setattr(differences, "MOST_TEXT", 3000)
    difference = differ(many, dict.fromkeys(many, b"y\n" * 100))
    assert difference.truncated and len(difference.files) == 50 and len(difference.diff) < 20_000
    assert difference.files[0].lines_added == 100
    assert difference.files[-1].omitted == "too much differs to show it all"
    late = differ(many, dict.fromkeys(many, b"y\n" * 100), time_limit_s=-1.0)
    assert late.truncated and len(late.files) == 50 and not any(file.lines for file in late.files)


def test_a_file_beyond_the_bounds_leaves_room_for_those_after_it(differ, monkeypatch):
    monkeypatch.setattr(differences, "MOST_TEXT", 3000)
    difference = differ(
        {"a.py": b"1\n", "b.csv": b"x\n" * 1000, "c.py": b"1\n"},
        {"a.py": b"2\n", "b.csv": b"y\n" * 1000, "c.py": b"2\n"},
    )
    assert [file.lines_added for file in difference.files] == [1, 0, 1] and difference.truncated


def test_difficult_comparison_ends_in_time(differ):
    """Lines that repeat are what the search is slow at; thousands of such files must not hold anything up."""
    hard = {f"{i}.txt": "".join(f"{j % 149}\n" for j in range(15_000)).encode() for i in range(40)}
    other = {name: "".join(f"{j * 7 % 149}\n" for j in range(15_000)).encode() for name in hard}
    began = time.thread_time()
    difference = differ(hard, other, time_limit_s=TIME_LIMIT_S)
    assert time.thread_time() - began < 20  # of CPU; the limit is 3 s of the clock
    assert len(difference.files) == 40 and any(file.omitted for file in difference.files)


def test_two_thousand_files_take_a_moment(differ):
    old = {f"package{i % 50}/module{i}.py": f"value = {i}\n".encode() * 50 for i in range(2000)}
    new = old | {name: content + b"more = 1\n" for name, content in list(old.items())[::10]}
    began = time.thread_time()
    difference = differ(old, new)
    assert time.thread_time() - began < 20
    assert len(difference.files) == 200 and not difference.truncated


def test_an_archive_that_cannot_be_read_is_refused(tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"no archive" * 200)
    with pytest.raises(CodeRefused, match="cannot be read"):
        compare(broken, tar(tmp_path / "whole", {}))
    with pytest.raises(CodeRefused):
        compare(tar(tmp_path / "whole", {}), tmp_path / "missing")


def test_comparison_takes_packed_folders(tmp_path):
    first = pack(select(write(tmp_path / "a", train_py="lr = 1\n")), tmp_path / "1", MIB)
    second = pack(select(write(tmp_path / "a", train_py="lr = 2\n")), tmp_path / "2", MIB)
    assert only(compare(first.path, second.path, PATIENCE_S)).lines == "@@ -1 +1 @@\n-lr = 1\n+lr = 2\n"


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "x\r", "é\u2028", "\x0c"]), max_size=30)
CONTENT = st.builds(lambda lines, end: ("\n".join(lines) + end).encode(), LINES, st.sampled_from(["", "\n"]))
NAMES = st.sampled_from(["a.py", "b c.py", 'q"uo\\te', "tab\there", "é.py", "d/e.py", "d/f g", "\udcff.py"])
TREES = st.dictionaries(NAMES, CONTENT, max_size=5)


@given(TREES, TREES, st.frozensets(NAMES), st.frozensets(NAMES))
def test_git_makes_the_new_tree_of_the_old_with_the_difference(old, new, old_modes, new_modes):
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        archives = tar(root / "old.tar", old, old_modes), tar(root / "new.tar", new, new_modes)
        difference = compare(*archives, PATIENCE_S)
        assert all(line[0] in " +-@\\" for file in difference.files for line in file.lines.split("\n")[:-1])
        tree = root / "tree"
        tree.mkdir()
        with tarfile.open(root / "old.tar", errors="surrogateescape") as archive:
            archive.extractall(tree, filter="data")
        if difference.diff:
            command = ["git", "apply", "--whitespace=nowarn", "-"]
            patch = difference.diff.encode()
            done = subprocess.run(command, cwd=tree, input=patch, capture_output=True, timeout=PATIENCE_S)
            assert done.returncode == 0, (done.stderr, difference.diff)
        made = {
            str(path.relative_to(tree)): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
            for path in tree.rglob("*")
            if path.is_file()
        }
        assert made == {name: (content, name in new_modes) for name, content in new.items()}
