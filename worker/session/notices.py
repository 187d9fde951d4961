"""The current problems of this node by subject, sent with every load sample and shown on the Nodes page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from domain.messages import NodeLoad

log = logging.getLogger("worker")


class Notices:
    """Thread-safe; a sentence is logged once and sent until it is removed."""

    def __init__(self) -> None:
        self._sentences: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def replace(self, subject: str, sentences: Sequence[str]) -> None:
        """Replace a subject's sentences; an empty list removes them."""
        with self._lock:
            new_sentences = [
                sentence for sentence in sentences if sentence not in self._sentences.get(subject, ())
            ]
            self._sentences[subject] = tuple(sentences)
        for sentence in new_sentences:
            log.warning("%s", sentence)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """Add all sentences to the notice of a load sample."""
        with self._lock:
            notices = [sentence for sentences in self._sentences.values() for sentence in sentences]
        load.notice = " ".join(filter(None, [load.notice, *notices])) or None
        return load
