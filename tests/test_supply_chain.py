"""What an installation brings: nothing known to be vulnerable, everything listed, and no dangerous call of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
ADVISORIES: dict[str, dict[str, str]] = tomllib.loads((ROOT / "tests/advisories.toml").read_text())
PACKAGES = ("cli", "dashboard", "db", "domain", "rankzero", "worker")
BIN = Path(sys.executable).parent


def pinned() -> dict[str, str]:
    """Every pinned package and its version."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def vulnerable(versions: dict[str, str]) -> dict[str, str]:
    """The packages whose version is below the first safe one, and why that matters."""
    advised = {name: advisory for name, advisory in ADVISORIES.items() if name in versions}
    return {name: a["because"] for name, a in advised.items() if Version(versions[name]) < Version(a["below"])}


def test_no_pinned_version_is_known_to_be_vulnerable() -> None:
    assert vulnerable(pinned()) == {}
    assert set(vulnerable(pinned() | {"starlette": "1.0.0", "authlib": "1.7.1"})) == {"starlette", "authlib"}


def test_advisories_name_packages_of_ours_and_say_why() -> None:
    assert set(ADVISORIES) - set(pinned()) == set() and len(ADVISORIES) > 20
    assert [name for name, advisory in ADVISORIES.items() if not re.match(r"CVE-\d{4}-\d+", advisory["because"])] == []


def test_the_bill_of_materials_lists_every_pinned_package(tmp_path: Path) -> None:
    command = ["make", "-s", "-o", "setup-test", "sbom", f"SBOM={tmp_path}/sbom.json"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"MAKEFLAGS": ""})
    assert made.returncode == 0, made.stderr
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "rankzero"
    listed = {canonicalize_name(component["name"]): component["version"] for component in bill["components"]}
    assert listed == pinned()
    assert all(component["purl"].startswith("pkg:pypi/") for component in bill["components"])


def test_bandit_complains_of_what_is_dangerous(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import hashlib\n\nhashlib.md5(b'x')\neval('1')\n")
    command = [BIN / "bandit", "-q", "-c", ROOT / "pyproject.toml", tmp_path / "code.py"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and "B324" in ended.stdout and "B307" in ended.stdout


def test_every_exclusion_from_bandit_names_the_rule_and_a_reason() -> None:
    lines = [
        (path.relative_to(ROOT), line.strip())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if "# nosec" in line
    ]
    assert len(lines) > 10
    assert [place for place in lines if not re.search(r"# nosec B\d{3}: \w+.{5,}$", place[1])] == []
