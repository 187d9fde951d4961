"""What belongs to a snapshot, and that it is the same wherever it is packed."""

from __future__ import annotations

import os
import socket
import tarfile
from pathlib import Path

import pytest

from dashboard.snapshots import code_packing, selection
from dashboard.snapshots import git as snapshot_git
from dashboard.snapshots.archive import pack
from dashboard.snapshots.code_packing import CodeRequest, check_code, pack_code, survey
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import select
from tests.dashboard.checkouts import commit, git, names_in, write

MIB = 1024 * 1024


def names(folder: Path) -> list[str]:
    return [item.name for item in select(folder).items]


def left_out(folder: Path) -> dict[str, str]:
    return {each.name: each.why for each in select(folder).left_out}


@pytest.fixture(params=["git", "no git", "no checkout"])
def folder(request, tmp_path, monkeypatch) -> Path:
    """The same folder as a checkout, as one where git is not installed, and as no checkout at all."""
    code = write(tmp_path / "code", train_py="", package__model_py="", package__deep__ops_py="", notes="x")
    if request.param != "no checkout":
        commit(code)
    if request.param == "no git":
        monkeypatch.setattr(selection, "has_git", lambda: False)
    return code


def test_everything_that_is_not_ignored_is_taken(folder):
    write(folder, **{".gitignore": "*.log\nrunlog/\n!keep.log\n", "a.log": "", "keep.log": "", "runlog__b": ""})
    write(folder, **{"package__.gitignore": "/data\n", "package__data__x": "1", "data__x_py": "", "new_py": ""})
    assert names(folder) == [
        ".gitignore", "data/x.py", "keep.log", "new.py", "notes", "package/.gitignore", "package/deep/ops.py",
        "package/model.py", "train.py",
    ]  # fmt: skip
    assert left_out(folder) == {"package/data/": "ignored", "runlog/": "ignored"}


def test_snapshot_leaves_out_files_that_are_no_code(folder, monkeypatch):
    write(folder, **{"venv__pyvenv.cfg": "", "venv__lib__x_py": "", "logs__events.out.tfevents.1": ""})
    write(folder, **{"conda__conda-meta__history": "", "conda__bin__python": ""})
    write(folder, **{"state__rankzero.db": "", "state__token": "secret", "node__join-token": "secret"})
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").touch()
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        chosen_names = names(folder)
    assert [name for name in chosen_names if name != "logs"] == [
        "notes", "package/deep/ops.py", "package/model.py", "train.py"
    ]  # fmt: skip


def test_links_stay_links_and_those_that_leave_stay_behind(folder, tmp_path):
    write(tmp_path / "elsewhere", big="")
    (folder / "inside").symlink_to(folder / "package" / "deep")
    (folder / "package" / "up").symlink_to("../notes")
    (folder / "data").symlink_to(tmp_path / "elsewhere")
    (folder / "broken").symlink_to("nothing")
    (folder / "whole").symlink_to(".")
    links = {item.name: item.link for item in select(folder).items if item.kind == "link"}
    assert links == {"inside": "package/deep", "package/up": "../notes", "whole": "."}
    assert left_out(folder) == {"data/": "outside"}


def test_a_private_file_that_is_linked_from_elsewhere_stays_behind(folder, tmp_path):
    secret = write(tmp_path / "elsewhere", shadow="root:x:0:", model_py="") / "shadow"
    secret.chmod(0o640)
    (folder / "x.txt").hardlink_to(secret)
    (folder / "shared.py").hardlink_to(tmp_path / "elsewhere/model.py")  # as backups and package managers do
    own = folder / "notes"
    own.chmod(0o600)
    (folder / "same").hardlink_to(own)
    assert left_out(folder) == {"x.txt": "outside"}
    assert {"notes", "same", "shared.py"} <= set(names(folder))


def test_only_event_files_are_taken_for_event_files(tmp_path):
    code = write(tmp_path / "code", read_tfevents_py="", tfevents__x_py="", **{"events.out.tfevents.1.host": ""})
    assert names(code) == ["read_tfevents.py", "tfevents/x.py"]


def test_a_checkout_too_large_for_git_is_looked_through_without_it(tmp_path, monkeypatch):
    code = write(tmp_path / "code", **{"train_py": "", ".gitignore": "data\n", "data": ""})
    commit(code)
    monkeypatch.setattr(snapshot_git, "git", too_slow)
    chosen_names, _ = chosen(code / "train.py")
    assert chosen_names == [".gitignore", "train.py"]


def too_slow(*_arguments: object) -> None:
    raise snapshot_git.GitTooSlow


def test_names_of_any_bytes_are_kept(folder):
    odd = os.fsencode(str(folder)) + b"/\xff \n-x\x01.py"
    Path(os.fsdecode(odd)).write_text("pass")
    packed = pack(select(folder), folder.parent / "archive", MIB)
    assert os.fsdecode(b"\xff \n-x\x01.py") in [os.fsdecode(os.fsencode(name)) for name in names_in(packed.path)]


def test_file_that_is_deleted_after_it_was_selected_is_left_out(tmp_path):
    code = write(tmp_path / "code", train_py="print(1)", notes_py="half")
    selection = select(code)
    (code / "notes.py").unlink()
    packed = pack(selection, tmp_path / "archive", MIB)
    assert (packed.files, names_in(packed.path)) == (1, ["train.py"])


def test_the_archive_is_the_same_whoever_packs_it_when_and_where(tmp_path):
    hashes = set()
    for number, place in enumerate(("a", "b")):
        code = write(tmp_path / place / "code", train_py="print(1)", package__model_py="x" * 3000)
        (code / "train.py").chmod(0o744 if number else 0o711)
        (code / "package" / "model.py").chmod(0o600 if number else 0o664)
        os.utime(code / "train.py", (number, number))
        hashes.add(pack(select(code), tmp_path / place / "archive", MIB).sha256)
    assert len(hashes) == 1
    with tarfile.open(tmp_path / "a" / "archive") as archive:
        assert {(m.uid, m.gid, m.mtime, m.uname) for m in archive} == {(0, 0, 0, "")}
        assert [oct(m.mode) for m in archive] == ["0o644", "0o755"]


def test_large_folder_is_refused_with_its_largest_parts(tmp_path):
    code = write(tmp_path / "code", train_py="", data__a=b"x" * 2 * MIB, weights=b"x" * MIB, small=b"x" * 1024)
    with pytest.raises(CodeRefused) as refused:
        pack_code(CodeRequest(str(code), "train.py"), tmp_path / "archive", MIB)
    assert str(refused.value) == (
        f"target: {code} is too large to be stored with the run: 4 files, 3 MiB, of which data/ 2 MiB, "
        "weights 1 MiB, small 1 KiB; the limit is 10000 files and 1 MiB. List data in .gitignore "
        "and link it with --link NAME=PATH, or run in place with --workdir PATH."
    )
    assert not (tmp_path / "archive").exists()


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    code = write(tmp_path / "code", **{f"f{number}": "" for number in range(30)}, train_py="")
    monkeypatch.setattr("dashboard.snapshots.archive.MOST_FILES", 20)
    with pytest.raises(CodeRefused, match="31 files"):
        survey(CodeRequest(str(code), "train.py"), MIB)


# -- a script and its folder -------------------------------------------------------------------


def chosen(target: Path, **start) -> tuple[list[str], list[str]]:
    choice = survey(CodeRequest(str(target), **start), 100 * MIB)
    assert choice is not None
    return [item.name for item in choice.selection.items], choice.origin.notes


def test_a_script_comes_with_its_folder_where_that_is_small(tmp_path):
    code = write(tmp_path / "code", train_py="import model", model_py="")
    assert chosen(code / "train.py") == (["model.py", "train.py"], [])


@pytest.mark.parametrize("much", [{"data": b"x" * 21 * MIB}, {f"f{n}": "" for n in range(500)}])
def test_a_script_comes_alone_where_its_folder_is_large(tmp_path, much):
    code = write(tmp_path / "code", train_py="", **much)
    chosen_names, (note,) = chosen(code / "train.py")
    assert chosen_names == ["train.py"]
    assert note.startswith(f"Only train.py itself is stored: {code} is not a git checkout and larger than")


def test_a_large_checkout_comes_whole(tmp_path):
    code = write(tmp_path / "code", train_py="", data=b"x" * 21 * MIB)
    commit(code)
    assert chosen(code / "train.py") == (["data", "train.py"], [])


def test_nobodys_home_comes_along_with_a_script(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(write(tmp_path, train_py="", diary="")))
    assert chosen(tmp_path / "train.py")[0] == ["train.py"]


def test_hidden_folders_come_only_where_git_has_them(tmp_path):
    code = write(tmp_path / "code", **{"train_py": "", ".ssh__key": "", ".env": ""})
    assert names(code) == [".env", "train.py"]
    commit(code)
    assert names(code) == [".env", ".ssh/key", "train.py"]


def test_a_part_of_a_checkout_says_so(tmp_path):
    top = write(tmp_path / "top", scripts__train_py="", package__x_py="")
    commit(top)
    chosen_names, notes = chosen(top / "scripts" / "train.py")
    assert chosen_names == ["train.py"]
    expected = f"launch {top} with --entry scripts/train.py to store all of it."
    assert notes == [f"Only scripts/ of the checkout is stored; {expected}"]


def test_a_script_that_is_a_link_is_started_beside_what_it_leads_to(tmp_path):
    code = write(tmp_path / "code", real_py="", model_py="")
    (tmp_path / "link.py").symlink_to(code / "real.py")
    choice = survey(CodeRequest(str(tmp_path / "link.py")), MIB)
    assert choice is not None and choice.entry == "real.py" and choice.selection.has("model.py")


def test_an_ignored_script_is_taken_when_it_is_named(tmp_path):
    code = write(tmp_path / "code", **{".gitignore": "mine.py\n", "mine_py": "", "train_py": ""})
    commit(code)
    assert "mine.py" in chosen(code / "mine.py")[0] and "mine.py" in chosen(code, entry="mine.py")[0]


def test_snapshot_names_ignored_files_with_their_size(tmp_path):
    code = write(tmp_path / "code", **{".gitignore": "data\n.cache/\n*.egg-info\n", "train_py": ""})
    write(code, **{"data__a": b"x" * 2048, ".cache__x": "", "x.egg-info__PKG": ""})
    commit(code)
    said = f"data/ (2 KiB) is ignored by git and not in the snapshot; --link data={code}/data links it there."
    assert chosen(code / "train.py")[1] == [said]
    assert chosen(code / "train.py", links=frozenset({"data"}))[1] == []


def test_the_commit_and_what_is_not_committed_are_known(tmp_path):
    code = write(tmp_path / "code", train_py="")
    head = commit(code)
    choice = survey(CodeRequest(str(code / "train.py")), MIB)
    assert choice is not None
    assert (choice.origin.commit, choice.origin.branch, choice.origin.dirty) == (head, "main", False)
    write(code, train_py="print(1)")
    choice = survey(CodeRequest(str(code / "train.py")), MIB)
    assert choice is not None and choice.origin.dirty
    assert choice.origin.version == f"main, commit {head[:10]} with uncommitted changes"


def test_a_checkout_in_the_checkout_comes_along(tmp_path):
    code = write(tmp_path / "code", train_py="")
    inner = write(code / "library", **{"x_py": "", ".gitignore": "big\n", "big": ""})
    commit(inner)
    commit(code)
    assert names(code) == ["library/.gitignore", "library/x.py", "train.py"]


def test_a_hook_of_the_checkout_is_not_run(tmp_path):
    code = write(tmp_path / "code", train_py="")
    commit(code)
    hook = write(tmp_path, hook=f"#!/bin/sh\ntouch {tmp_path}/ran\n") / "hook"
    hook.chmod(0o755)
    git(code, "config", "core.fsmonitor", str(hook))
    survey(CodeRequest(str(code / "train.py")), MIB)
    assert not (tmp_path / "ran").exists()


def test_variables_of_the_environment_do_not_lead_git_elsewhere(tmp_path, monkeypatch):
    other = write(tmp_path / "other", secret_py="")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    code = write(tmp_path / "code", train_py="")
    assert names(code) == ["train.py"]
    assert snapshot_git.git(code, "rev-parse", "HEAD").code != 0


# -- what is started in it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "field", "words"),
    [
        ({}, "entry", "is a folder; name the file or module"),
        ({"entry": "../x.py"}, "entry", "lies outside of"),
        ({"entry": "/etc/passwd"}, "entry", "lies outside of"),
        ({"entry": "a/../../x.py"}, "entry", "lies outside of"),
        ({"entry": "leaving.py"}, "entry", "is a link that leaves"),
        ({"entry": "none.py"}, "entry", "there is no file 'none.py'"),
        ({"entry": "package"}, "entry", "there is no file 'package'"),
        ({"entry": "x" * 5000}, "entry", "there is no file"),
        ({"entry": "binary.py"}, "entry", "binary.py is not a Python script: it is a binary file."),
        ({"entry": "run.sh"}, "entry", "run.sh is not a Python script: its first line names bash."),
        ({"entry": "nb.ipynb"}, "entry", "nb.ipynb is a notebook"),
        ({"entry": "notes.txt"}, "entry", "notes.txt is not a Python script (line 1:"),
        ({"module": "other"}, "module", "there is neither other.py nor other/__main__.py"),
        ({"module": "inner"}, "module", "It is below src/"),
        ({"entry": "train.py", "ref": "main"}, "ref", "only a git address has one"),
    ],
)
def test_a_wrong_start_is_refused_in_a_sentence(tmp_path, start, field, words):
    code = write(tmp_path / "code", train_py="", package__x_py="", src__inner_py="")
    write(
        code,
        **{
            "binary_py": b"\x7fELF\0",
            "run.sh": "#!/usr/bin/env bash\n",
            "nb.ipynb": "{}",
            "notes.txt": "a b",
        },
    )
    (code / "leaving.py").symlink_to(write(tmp_path, x_py="") / "x.py")
    for look in (check_code, lambda code_request: survey(code_request, MIB)):
        with pytest.raises(CodeRefused) as refused:
            look(CodeRequest(str(code), **start))
        assert refused.value.field == field and words in str(refused.value)
        assert str(refused.value).startswith(f"{field}: ")


def test_a_script_that_does_not_compile_here_is_only_warned_of(tmp_path):
    code = write(tmp_path / "code", train_py="import os\nx = = 1\n")
    assert chosen(code / "train.py")[1] == ["train.py does not compile with the Python here (line 2: invalid syntax)."]


def test_modules_and_entries_below_are_found(tmp_path):
    code = write(tmp_path / "code", package__train_py="", package__main____main___py="", deep__er__t_py="")
    for start in ({"module": "package.train"}, {"entry": "deep/er/t.py"}, {"entry": "./deep/er/../er/t.py"}):
        check_code(CodeRequest(str(code), **start))
    assert (
        code_packing.pack_code(CodeRequest(str(code), str(code / "deep/er/t.py")), tmp_path / "a", MIB).entry
        == "deep/er/t.py"
    )


def test_git_lfs_pointers_in_the_code_are_named_with_what_to_do(tmp_path: Path) -> None:
    code = write(tmp_path / "code", train_py="", notes=f"version 1\n{'x' * 200}")
    (code / "weights").mkdir()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {3 * MIB}\n"
    (code / "weights/base.pt").write_text(pointer)
    choice = survey(CodeRequest(str(code), "train.py"), MIB)
    assert choice is not None
    assert choice.origin.notes == [
        "weights/base.pt is a Git LFS pointer, a small text in place of the file (3 MiB): run `git lfs pull` in the "
        "checkout and launch it from there."
    ]
