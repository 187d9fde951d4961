"""What an interpreter is asked, what it answers, and the sentence for each that cannot train."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.worker.launch.environments import install_torch, site_packages, venv
from worker.launch import interpreter
from worker.launch.interpreter import Interpreter, Unusable, ask, check, find, torchrun_of

ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def program(folder: Path, text: str, name: str = "python") -> str:
    """A shell script that passes for an interpreter."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def install_metadata(place: Path, package: str, version: str) -> None:
    folder = place / f"{package.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


@pytest.mark.real
def test_the_interpreter_of_these_tests_has_what_an_import_says() -> None:
    described = ask(sys.executable, os.environ)
    code = "import torch, platform; print(torch.__version__, torch.version.cuda, platform.python_version())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [described.torch, str(described.cuda), described.python] == said.stdout.split()
    assert described.path == sys.executable and described.prefix == sys.prefix
    names = ("torch", "numpy", "pydantic-core", "pytest")
    assert [described.packages[name] for name in names] == [metadata.version(name) for name in names]
    assert "packages" not in described.facts
    check(described)


def test_a_venv_without_torch_is_told_apart_from_one_with_it(tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    path = str(environment / "bin/python")
    with pytest.raises(Unusable) as error:
        check(ask(path, ENV))
    assert error.value.on("node gpu-1") == (
        f"The Python {path} has no torch on node gpu-1: install torch in it, add a lock file with torch "
        "to the code, or choose another with --python."
    )
    install_torch(site_packages(environment), "2.12.1+cu126", "12.6")
    install_metadata(site_packages(environment), "nvidia-nccl-cu12", "2.27.3")
    install_metadata(site_packages(environment), "nvidia-nccl-cu13", "2.99.1")
    described = ask(path, ENV)
    assert (described.torch, described.cuda, described.nccl) == ("2.12.1+cu126", "12.6", "2.27.3")
    assert described.path == path and described.prefix == str(environment)


def test_an_answer_is_kept_until_something_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = venv(tmp_path / "env")
    install_torch(site_packages(environment), "2.12.0")
    asked = []
    really_ask = interpreter._query
    monkeypatch.setattr(interpreter, "_query", lambda *what: asked.append(1) or really_ask(*what))
    path = str(environment / "bin/python")
    assert [ask(path, ENV).torch for _ in range(3)] == ["2.12.0"] * 3 and len(asked) == 1
    install_torch(site_packages(environment), "2.13.0")
    assert [ask(path, ENV).torch for _ in range(3)] == ["2.13.0"] * 3 and len(asked) == 2
    install_metadata(site_packages(environment), "something-else", "1.0")
    ask(path, ENV)
    assert len(asked) == 3


def test_pythonpath_is_seen_as_the_training_will_see_it(tmp_path: Path) -> None:
    path = str(venv(tmp_path / "env") / "bin/python")
    install_torch(tmp_path / "elsewhere", "2.5.1+rocm6.2", hip="6.2.41133", rocm=None)
    described = ask(path, ENV | {"PYTHONPATH": str(tmp_path / "elsewhere")})
    assert (described.torch, described.cuda, described.nccl, described.rocm) == (
        "2.5.1+rocm6.2",
        None,
        None,
        "6.2.41133",
    )
    assert ask(path, ENV).torch is None


def test_a_folder_named_torch_where_it_is_asked_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(venv(tmp_path / "env") / "bin/python")
    (tmp_path / "here" / "torch").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert ask(path, ENV | {"PYTHONPATH": str(tmp_path / "here")}).torch is None


def test_the_library_beside_torch_tells_its_version_where_no_package_does(tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    libraries = install_torch(site_packages(environment), "2.4.0", "12.1") / "lib"
    libraries.mkdir()
    path = str(environment / "bin/python")
    assert ask(path, ENV).nccl is None
    (libraries / "libnccl.so.2.20.5").touch()
    (libraries / "libnccl.so.2").symlink_to("libnccl.so.2.20.5")
    (site_packages(environment) / "touched.pth").touch()
    assert ask(path, ENV).nccl == "2.20.5"


def test_an_environment_that_prints_of_its_own_accord_is_understood(tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    install_torch(site_packages(environment), "2.9.0")
    (site_packages(environment) / "chatty.pth").write_text("import sys; print('hello'); sys.stderr.write('x')")
    assert ask(str(environment / "bin/python"), ENV).torch == "2.9.0"


def test_asking_takes_well_under_a_second() -> None:
    assert any(asking_s() < 1 for _ in range(3))  # of CPU: 0.06 s; torch takes two


def asking_s() -> float:
    """The CPU time that a question takes; a machine that stands still may make more of one than it was."""
    interpreter._answers.clear()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ask(sys.executable, os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("exit 3", "{} is not a Python that can train (exit code 3) on n0: choose another with --python."),
        ("kill -SEGV $$", "The interpreter {} crashed with SIGSEGV on n0: choose another with --python."),
        (
            "echo no licence found >&2; exit 1",
            "{} is not a Python that can train (exit code 1) on n0: choose another with --python."
            " Its last output: no licence found",
        ),
        ("echo rankzero-interpreter:nonsense", "The interpreter {} gave no valid answer on n0: choose"),
        ("sleep 600", "The interpreter {} did not answer within 0.5 s on n0: choose another with --python."),
        ("exec 1>&- 2>&-; sleep 600", "The interpreter {} did not end within 0.5 s on n0: choose"),
    ],
)
def test_file_that_is_no_interpreter_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    path = program(tmp_path, text)
    output = interpreter._output
    if "exec" in text:  # it may be slow to close its output, but is not to end
        monkeypatch.setattr(interpreter, "_output", lambda process, _: output(process, 300))
    with pytest.raises(Unusable) as error:
        ask(path, ENV, limit_s=0.5 if "sleep" in text else 300)
    assert error.value.on("n0").startswith(sentence.format(path))
    assert not error.value.is_missing


def test_a_shell_does_not_carry_out_the_question(tmp_path: Path) -> None:
    for shell in ("sh", "bash"):
        with pytest.raises(Unusable, match="is not a Python"):
            ask(shutil.which(shell), ENV)


def test_endless_output_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="prints endlessly"):
        ask(program(tmp_path, "exec yes"), ENV, limit_s=300)


def test_program_of_the_wrong_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x7fELF of another kind")
    path.chmod(0o755)
    with pytest.raises(Unusable, match="cannot be started"):
        ask(str(path), ENV)


def test_a_venvs_folder_stands_for_its_python(tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    assert find(str(environment)) == str(environment / "bin/python")


def test_home_is_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = program(tmp_path, "exit 0", "env/bin/python")
    assert find("~/env/bin/python") == path


def test_a_plain_name_is_looked_up_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{ENV['PATH']}")
    path = program(tmp_path, "exit 0", "mypython")
    assert find("mypython") == path
    with pytest.raises(Unusable, match="There is no interpreter nopython on PATH"):
        find("nopython")


def test_missing_package_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "removed")
    (tmp_path / "folder").mkdir()
    sentences = {
        "/nowhere/python": "The interpreter /nowhere/python does not exist",
        str(tmp_path / "link"): f"does not exist (it leads to {tmp_path}/removed)",
        str(tmp_path / "plain"): "is not executable",
        str(tmp_path / "folder"): "is a folder without bin/python",
        "env/bin/python": "is neither an absolute path nor a name on PATH",
        "~nobodyhere/python": "cannot be looked up",
        "/" + "x" * 5000: "cannot be looked up (File name too long)",
    }
    for path, sentence in sentences.items():
        with pytest.raises(Unusable) as error:
            find(path)
        assert sentence in str(error.value) and error.value.is_missing, path


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("2.3.1+cu121", True), ("1.13.0", True), ("2.4.0", False), ("2.4.0a0+git1", False), ("3.0", False)],
)
def test_torch_has_to_be_2_4_or_newer(version: str, is_old: bool) -> None:
    one = Interpreter("/x/python", "3.11.8", version, None, None, None, "/x", "linux x86_64")
    if not is_old:
        return check(one)
    with pytest.raises(Unusable) as error:
        check(one)
    assert error.value.on("n0") == (
        f"The torch of /x/python is {version}, older than the 2.4 that trainings need, on n0: "
        "install a newer one, or choose another with --python."
    )


def test_facts_are_plain_json() -> None:
    facts = ask(sys.executable, os.environ).facts
    assert json.loads(json.dumps(facts)) == facts
    assert {"path", "python", "torch", "cuda", "nccl"} <= facts.keys()


def test_torchrun_is_taken_only_from_the_same_environment(tmp_path: Path) -> None:
    assert torchrun_of(sys.executable) == str(Path(sys.executable).with_name("torchrun"))
    environment = venv(tmp_path / "env")
    python, torchrun = environment / "bin/python", environment / "bin/torchrun"
    assert torchrun_of(str(python)) is None
    torchrun.write_text(f"#!{sys.executable}\n")
    torchrun.chmod(0o755)
    assert torchrun_of(str(python)) is None
    torchrun.write_text(f"#!{environment}/bin/python3\n")
    assert torchrun_of(str(python)) == str(torchrun)
    torchrun.chmod(0o644)
    assert torchrun_of(str(python)) is None
