"""Repositories by their address: what is taken for one, what is fetched, and what nobody can smuggle in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.snapshots.code_packing import CodeRequest, PackedCode, check_code, pack_code
from dashboard.snapshots.git import GitLimits, Outcome, pinned
from dashboard.snapshots.git_address import CodeRefused, check_address, check_ref, is_git_address, repository_name
from tests.dashboard.checkouts import commit, git, names_in, write
from tests.dashboard.git_server import git_over_https

MIB = 1024 * 1024
FILES = GitLimits(protocols=("file",))


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/karpathy/nanoGPT",
        "https://example.org:8443/a/b.git",
        "ssh://git@example.org/a/b.git",
        "ssh://git@example.org:2222/~me/b",
        "git@github.com:karpathy/nanoGPT.git",
        "me@gpu-1.lan:code/b",
    ],
)
def test_addresses_are_known_and_taken_as_they_are(address: str) -> None:
    assert is_git_address(address) and check_address(address) == address
    assert repository_name(address) in ("nanoGPT", "b")


@pytest.mark.parametrize("path", ["/a/train.py", "train.py", "./x", "../x", "language_model", "~/x", "/a/b.git"])
def test_paths_and_recipes_are_no_addresses(path: str) -> None:
    assert not is_git_address(path)


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/a.git", "git://example.org/a", "ftp://example.org/a", "file:///etc", "FILE:///etc",
        "ext::sh -c touch% /tmp/x", "EXT::sh", "fd::17", "https::x", "-u:x", "--upload-pack=touch x:y",
        "https://-oProxyCommand=x/a", "ssh://-oProxyCommand=x/a", "ssh://git@-oProxyCommand=x/a", "git@-o:x",
        "git@host:-x", "https://example.org/-x", "https://example.org/a?x=1", "https://example.org/a#b",
        "https://example.org/a b", "https://example.org/a\nb", "https://example.org/a\x00", "https:///a",
        "https://example.org", "https://exa mple.org/a", "https://example.org:x/a", "https://[::1/a",
        "https://example.org/%0a$(id)", "https://" + "x" * 3000, "local.git", "user@host:pa th",
    ],
)  # fmt: skip
def test_nothing_else_is_taken_for_an_address(address: str) -> None:
    with pytest.raises(CodeRefused) as refused:
        check_code(CodeRequest(address, entry="train.py"))
    assert refused.value.field == "target" and str(refused.value).endswith(".")


@pytest.mark.parametrize("address", ["https://me:s3cret@example.org/a", "https://s3cret@example.org/a",
                                     "ssh://me:s3cret@example.org/a"])  # fmt: skip
def test_a_secret_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(CodeRefused, match="must not hold") as refused:
        check_address(address)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "169.254.0.1", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518",
        "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]", "[fe80::1]", "[febf::1]", "[fd00:ec2::254]", "[fd00:0ec2:0::254]",
        "100.100.100.200",
    ],
)  # fmt: skip
def test_git_never_asks_where_a_machine_keeps_its_credentials(tmp_path: Path, host: str) -> None:
    for address in (f"https://{host}/a/b.git", f"https://{host}:8443/a", f"ssh://git@{host}/a/b"):
        with pytest.raises(CodeRefused, match="link-local") as refused:
            brought(tmp_path, address, limits=GitLimits())
        assert refused.value.field == "target"


def test_a_name_that_resolves_there_is_refused_and_any_other_is_asked_where_it_was_checked() -> None:
    for answer in (["10.0.0.1", "169.254.169.254"], ["fe80::1%eth0"]):
        with pytest.raises(CodeRefused, match=r"metadata\.example is"):
            pinned("https://metadata.example/a", lambda host, answer=answer: answer)
    with pytest.raises(CodeRefused, match=r"metadata\.example is"):
        pinned("git@metadata.example:a/b", lambda host: ["169.254.169.254"])
    options = pinned("https://git.example:8443/a", lambda host: ["10.0.0.1", "fd00::1"])
    assert options == ["-c", "http.curloptResolve=git.example:8443:10.0.0.1,[fd00::1]"]
    assert pinned("ssh://git@alias/a", lambda host: []) == pinned("https://proxied/a", lambda host: []) == []


@pytest.mark.parametrize("ref", ["main", "v1.0", "feature/x-1", "0123abc", "a" * 40, "release+1", "issue#3"])
def test_a_ref_is_a_branch_tag_or_commit(ref: str) -> None:
    assert check_ref(ref) == ref


@pytest.mark.parametrize("ref", ["-x", "--upload-pack=x", "a..b", "a b", "a:b", "+a", "a@{1}", "a.lock", "a/", "^a",
                                 "a~1", "$(id)", "a\nb"])  # fmt: skip
def test_nothing_else_is_taken_for_a_ref(ref: str) -> None:
    with pytest.raises(CodeRefused, match="ref: "):
        check_ref(ref)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    code = write(tmp_path / "code.git", train_py="print(1)\n", package__x_py="")
    commit(code)
    git(code, "tag", "v1")
    write(code, train_py="print(2)\n")
    commit(code, "second")
    git(code, "branch", "other", "v1")
    return code


def brought(tmp_path: Path, url: str, ref: str | None = None, limits: GitLimits = FILES) -> PackedCode:
    (tmp_path / "archive").unlink(missing_ok=True)
    return pack_code(CodeRequest(url, entry="train.py", ref=ref), tmp_path / "archive", MIB, limits)


@pytest.fixture
def any_address(monkeypatch) -> None:
    """Addresses on this disk, which nobody can name otherwise."""
    monkeypatch.setattr("dashboard.snapshots.code_packing.check_address", lambda url: url)


def test_a_ref_becomes_the_commit_it_stands_for(tmp_path, repository, any_address):
    first, second = git(repository, "rev-parse", "v1"), git(repository, "rev-parse", "main")
    url = repository.as_uri()
    for ref, expected in ((None, second), ("main", second), ("v1", first), ("other", first), (second, second),
                          (first, first), (first[:9], first)):  # fmt: skip
        brought_code = brought(tmp_path, url, ref)
        assert brought_code.origin.commit == expected, ref
        assert (brought_code.origin.url, brought_code.origin.ref, brought_code.entry) == (url, ref, "train.py")
        assert names_in(brought_code.packed.path) == ["package/x.py", "train.py"]


@pytest.mark.parametrize("ref", ["nothing", "0" * 40, "0" * 9])
def test_a_ref_that_is_not_there_is_named(tmp_path, repository, any_address, ref):
    with pytest.raises(CodeRefused) as refused:
        brought(tmp_path, repository.as_uri(), ref)
    assert str(refused.value) == f"ref: {repository.as_uri()} has no branch, tag or commit {ref!r}."


def test_a_protocol_that_is_not_allowed_is_not_spoken(tmp_path, repository, any_address):
    with pytest.raises(CodeRefused, match="transport 'file' not allowed"):
        brought(tmp_path, repository.as_uri(), limits=GitLimits())


def test_neither_hooks_nor_filters_of_a_repository_run(tmp_path, repository, any_address):
    write(repository, **{".gitattributes": "*.py filter=lfs\n", ".githooks__post-checkout": "#!/bin/sh\n"})
    write(repository, **{".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch x"\n'})
    commit(repository, "third")
    assert ".gitattributes" in names_in(brought(tmp_path, repository.as_uri()).packed.path)


def test_a_repository_that_is_too_large_is_cut_off(tmp_path, repository, any_address, monkeypatch):
    monkeypatch.setattr("dashboard.snapshots.git._wait", at_least_one_look)
    with pytest.raises(CodeRefused, match="is larger than 1 B"):
        brought(tmp_path, repository.as_uri(), limits=GitLimits(("file",), limit_bytes=1))


def at_least_one_look(process, limit_s, is_too_large) -> None:
    from dashboard.snapshots.git import GitTooLarge

    process.wait(limit_s)
    if is_too_large():
        raise GitTooLarge


def test_a_repository_that_takes_too_long_is_given_up(tmp_path, repository, any_address):
    with pytest.raises(CodeRefused, match="within 0 s"):
        brought(tmp_path, repository.as_uri(), limits=GitLimits(("file",), limit_s=0.0))


def test_a_start_that_is_not_in_the_repository_is_named_by_its_address(tmp_path, repository, any_address):
    code_request = CodeRequest(repository.as_uri(), entry="none.py")
    with pytest.raises(CodeRefused) as refused:
        pack_code(code_request, tmp_path / "archive", MIB, FILES)
    assert str(refused.value) == f"entry: there is no file 'none.py' in {repository.as_uri()}."


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("me@host: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease make\n",
         "me@host: Permission denied (publickey)."),
        ("Cloning\nfatal: repository 'x' not found\n", "repository 'x' not found"),
        ("error: RPC failed\nfatal: early EOF\n", "RPC failed"),
        ("something\nelse\n", "else"),
        ("", "it printed no message"),
    ],
)  # fmt: skip
def test_sentence_has_gits_most_telling_line(said, sentence):
    assert Outcome(1, b"", said).complaint == sentence


def test_https_is_spoken_and_nothing_else_follows(tmp_path, repository, monkeypatch):
    with git_over_https(tmp_path) as (url, server, certificate):
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
        address = f"{url}/code.git"
        brought_code = brought(tmp_path, address, "v1", GitLimits())
        assert brought_code.origin.commit == git(repository, "rev-parse", "v1")
        server.redirect_to = "https://example.org"
        with pytest.raises(CodeRefused, match="git could not fetch"):
            brought(tmp_path, address, limits=GitLimits())
        server.redirect_to, server.needs_password = "", True
        with pytest.raises(CodeRefused, match="git could not fetch") as refused:
            brought(tmp_path, address, limits=GitLimits())
        assert "could not read Username" in str(refused.value)
        assert set(server.asked) == {""}
