"""What is wrong with this node, one sentence a subject: sent with every sample of its load, for the Nodes page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from domain.messages import NodeLoad

log = logging.getLogger("worker")


class Notices:
    """Safe to use from several threads; a sentence is logged once, and said until it is no longer so."""

    def __init__(self) -> None:
        self._sentences: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def tell(self, subject: str, sentences: Sequence[str]) -> None:
        """Replace what is said of a subject; nothing ends it."""
        with self._lock:
            fresh = [each for each in sentences if each not in self._sentences.get(subject, ())]
            self._sentences[subject] = tuple(sentences)
        for sentence in fresh:
            log.warning("%s", sentence)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """The sample, with all that is wrong besides."""
        with self._lock:
            told = [each for sentences in self._sentences.values() for each in sentences]
        load.notice = " ".join(filter(None, [load.notice, *told])) or None
        return load
