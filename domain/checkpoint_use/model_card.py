"""The model card of a pushed checkpoint: where it comes from, without paths, environment or secrets. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domain.masking.masking import masked_text
from domain.text.formats import as_text, count, learning_rate, number, plural, size
from domain.views import CheckpointView, RunView

CARD_NAME = "README.md"


@dataclass(frozen=True)
class CardFacts:
    """What a card says."""

    run: RunView
    checkpoint: CheckpointView
    """The pushed one, or the one that it was merged from: its step and loss."""
    world_size: int
    """Ranks of the attempt that saved it."""
    url: str | None = None
    """The run's page, where the dashboard has a public address."""
    code: str | None = None
    """Branch and commit."""
    interpreter: Mapping[str, Any] = field(default_factory=dict)
    """The versions of the Python that trained."""
    data: Sequence[str] = ()
    """The staged data, each with its digest."""
    merge: Mapping[str, Any] | None = None
    """The result of the merge that it comes from."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """The name of the curve in each picture, by the picture's file name."""
    loads_in_transformers: bool = False


def model_card(facts: CardFacts) -> str:
    """Return the card's text, with a seal that tells whether anybody edited it since."""
    name = _safe(facts.run.name)
    parts = [
        "\n".join(_header(facts)),
        f"# {name}",
        _sentence(facts),
        *(f"![{_safe(curve)}]({file})" for file, curve in facts.pictures.items()),
        "\n".join(_table(("", ""), _rows(facts))),
        *_files(facts.merge or {}),
    ]
    return _sealed("\n\n".join(parts))


def _header(facts: CardFacts) -> Iterator[str]:
    yield "---"
    if facts.loads_in_transformers:
        yield "library_name: transformers"
    yield from ("tags:", "- rankzero", "- pytorch", "---")


def _sentence(facts: CardFacts) -> str:
    run, step = facts.run, facts.checkpoint.step
    of_run = f"run [{_safe(run.name)}]({facts.url})" if facts.url else f"run {_safe(run.name)}"
    saved = f"Step {count(step)}" if step is not None else "A checkpoint"
    return f"{saved} of {of_run} ({run.id}) in project {_safe(run.project)}, trained with PyTorch under Rankzero."


def _rows(facts: CardFacts) -> Iterator[tuple[str, str]]:
    """Yield what is known, each with its heading."""
    run, saved, spec = facts.run, facts.checkpoint, facts.run.spec
    values = {
        "Checkpoint": saved.name.rpartition("/")[2],
        saved.loss_name or "Loss": None if saved.loss is None else number(saved.loss, 5),
        "Ranks": count(facts.world_size),
        "Global batch": None if run.global_batch_size is None else count(run.global_batch_size),
        "Learning rate": None if run.lr is None else learning_rate(run.lr),
        "Precision": spec.precision,
        "Strategy": spec.strategy,
        "Python": facts.interpreter.get("python"),
        "torch": facts.interpreter.get("torch"),
        "CUDA": facts.interpreter.get("cuda"),
        "Code": facts.code,
        "Code snapshot": f"SHA-256 {spec.snapshot}" if spec.snapshot else None,
        "Data": "; ".join(facts.data),
        "SHA-256 as saved": saved.sha256,
        "Merged": _proof(facts.merge) if facts.merge else None,
    }
    yield from ((_safe(heading), _safe(value)) for heading, value in values.items() if value not in (None, ""))


def _proof(merge: Mapping[str, Any]) -> str:
    tensors = plural(int(merge.get("tensors", 0)), "tensor")
    checked = ", each compared with the shards after writing" if merge.get("proof") else ""
    return f"{tensors} of plain names{checked}"


def _files(merge: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of the merged files with their digests, if there are any."""
    files = [file for file in merge.get("files", ()) if isinstance(file, Mapping)]
    rows = [(_safe(file["name"]), size(file["size_bytes"]), str(file["sha256"])) for file in files[:MOST_FILES]]
    if rows:
        yield "\n".join(_table(("File", "Size", "SHA-256"), rows))


def _table(titles: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


def _safe(text: object) -> str:
    """A text of a person as Markdown that shows its characters, without what looks like a secret."""
    return as_text(masked_text(str(text)[:LONGEST_TEXT]))


MOST_FILES = 200
LONGEST_TEXT = 1000
_SEAL = re.compile(r"\n<!-- Rankzero renews this card unless it is edited: ([0-9a-f]{64}) -->\n\Z")


def _sealed(text: str) -> str:
    body = f"{text}\n"
    return f"{body}\n<!-- Rankzero renews this card unless it is edited: {_digest(body)} -->\n"


def is_unedited(card: str) -> bool:
    """Whether a card is ours and as we wrote it; only such a card is overwritten."""
    seal = _SEAL.search(card)
    return seal is not None and _digest(card[: seal.start()]) == seal[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
