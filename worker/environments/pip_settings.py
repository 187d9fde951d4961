"""uv with pip's settings: `python pip_settings.py uv pip install …` finds packages where pip does.

Only Python's own library is imported: `make setup` runs this file before anything is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser, Error
from pathlib import Path

VARIABLES = {
    "index_url": "UV_DEFAULT_INDEX",
    "extra_index_url": "UV_INDEX",
    "find_links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted_host": "UV_INSECURE_HOST",
}
"""Settings of pip that uv has under another name; their values are lists with spaces or lines between."""
MACHINE_FILE = Path("/etc/pip.conf")
SECTIONS = ("global", "install")
OFF = ("", "0", "false", "no", "off")


def uv_variables(env: Mapping[str, str], prefix: Path | None = None) -> dict[str, str]:
    """Return what pip's variables and configuration files mean as variables of uv, without those that `env` has.

    `prefix`: the virtual environment, which may have a configuration file of its own."""
    settings = _settings(env, prefix)
    translated = {uv: _value(uv, settings[pip]) for pip, uv in VARIABLES.items() if settings.get(pip, "").strip()}
    if "UV_INDEX" in translated and "UV_INDEX" not in env:  # as pip does: the best of all indexes
        translated["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in translated.items() if name not in env}


def index_options(env: Mapping[str, str], prefix: Path | None = None) -> list[str]:
    """Return the options for what uv has no variable for: that only folders of wheels are asked."""
    return ["--no-index"] if _settings(env, prefix).get("no_index", "").lower() not in OFF else []


def _settings(env: Mapping[str, str], prefix: Path | None) -> dict[str, str]:
    return _of_files(_files(env, prefix)) | _of_variables(env)


def _files(env: Mapping[str, str], prefix: Path | None) -> list[Path]:
    """Return the configuration files in pip's order: the later one wins."""
    home = Path(env.get("HOME") or Path.home())
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    machine = [Path(folder, "pip/pip.conf") for folder in env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder]
    person = [home / ".pip/pip.conf", Path(env.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")]
    own = [prefix / "pip.conf"] if prefix else []
    return [*machine, MACHINE_FILE, *person, *own, *([Path(named)] if named else [])]


def _of_files(paths: Sequence[Path]) -> dict[str, str]:
    """Return pip's settings from its files; one that cannot be read counts as empty."""
    parser = ConfigParser(interpolation=None)
    for path in paths:
        try:
            parser.read(path, encoding="utf-8")
        except (Error, UnicodeDecodeError, PermissionError):
            continue
    sections = [parser[name] for name in SECTIONS if parser.has_section(name)]
    return {_key(name): value for section in sections for name, value in section.items()}


def _of_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {_key(name.removeprefix("PIP_")): value for name, value in env.items() if name.startswith("PIP_")}


def _key(name: str) -> str:
    return name.lower().replace("-", "_")


def _value(variable: str, value: str) -> str:
    return ("," if variable == "UV_FIND_LINKS" else " ").join(value.split())


if __name__ == "__main__":
    command = sys.argv[1:] + index_options(os.environ, Path(sys.prefix))
    os.environ.update(uv_variables(os.environ, Path(sys.prefix)))
    os.execvp(command[0], command)
