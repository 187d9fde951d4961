"""Note which environment variables Python code reads: only those bind what is imported to the environment."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_QUOTED = re.compile(r"""["']([A-Za-z_]\w*)["']""")
_OF_MAPPINGS = ("os", "_collections_abc", "collections.abc", __name__)
"""Modules through which others read the whole environment."""


class Reads:
    """The variables that are read, by name, between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.readers_of_all: set[str] = set()
        """Packages that looked through all variables, which tells nothing of their names."""
        self._passed: Any = None
        """The name at which such a look through all is now."""

    def __enter__(self) -> Reads:
        """Begin to note."""
        environment: Any = type(os.environ)
        self._originals = environment.__getitem__, environment.__iter__
        environment.__getitem__, environment.__iter__ = self._getter(), self._iterator()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the environment as it was."""
        environment: Any = type(os.environ)
        environment.__getitem__, environment.__iter__ = self._originals

    def _getter(self) -> Any:
        original = self._originals[0]

        def __getitem__(environment: Any, name: Any) -> Any:
            if name == self._passed:
                self._passed = None
            elif isinstance(name, (str, bytes)):
                self.names.add(os.fsdecode(name))
            return original(environment, name)

        return __getitem__

    def _iterator(self) -> Any:
        original = self._originals[1]

        def __iter__(environment: Any) -> Iterator[Any]:
            self.readers_of_all.add(_reader())
            for name in original(environment):
                self._passed = name
                yield name
            self._passed = None

        return __iter__


def named_by_site() -> set[str]:
    """The names in the code that ran when this Python started: of `.pth` files, and of modules that are not its own."""
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    packages = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    files = [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    own = [file for file in files if file.startswith(packages) or not file.startswith((*standard, _HERE))]
    texts = [_text(file) for file in own if file.endswith(".py")]
    texts += [_text(path) for folder in sys.path if os.path.isdir(folder) for path in _path_files(folder)]  # noqa: PTH112
    return {name for text in texts for name in _QUOTED.findall(text)}


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


def _path_files(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pth")]  # noqa: PTH118, PTH208


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _reader() -> str:
    """The top-level package that looks through the environment."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _OF_MAPPINGS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] if frame is not None else ""
