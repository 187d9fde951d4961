"""Keep Python's garbage collector from scanning objects that live for ever."""

from __future__ import annotations

import functools
import gc
import importlib


@functools.cache
def spare_what_stays() -> None:
    """Freeze all loaded modules' objects, once.

    Python's full collections, and those of sessions that end, then scan only what pages have made since."""
    for name in ("pandas", "pyarrow"):  # loaded by Streamlit at the first table
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
