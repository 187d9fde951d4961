"""The parts of the package that a command needs: the extras `server` and `worker`."""

from __future__ import annotations

import re
from importlib import metadata

from cli.terminal import CommandFailed

_OF_EXTRA = re.compile(r"""([\w.-]+).*;.*\bextra == ["'](\w+)["']""")


def require(command: str, *extras: str) -> None:
    """Check that the packages of these extras are installed. Raises CommandFailed, which says how to install them."""
    missing = [name for name in packages_of(extras) if not is_installed(name)]
    if missing:
        listed = ", ".join(missing[:3]) + (" and more" if len(missing) > 3 else "")
        raise CommandFailed(
            f"`rankzero {command}` needs packages that are not installed here ({listed}): "
            f"pip install 'rankzero[{','.join(extras)}]'"
        )


def packages_of(extras: tuple[str, ...]) -> list[str]:
    """Return the names of the packages that these extras list."""
    lines = map(_OF_EXTRA.match, metadata.requires("rankzero") or ())
    return [line[1] for line in lines if line and line[2] in extras]


def is_installed(package: str) -> bool:
    """Whether the package is installed, whatever version."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True
