"""Every promise of RUN-LIFE and SECURITY names the test that holds it, and the lane of that test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.promises import (
    REASONS,
    TABLE,
    Promise,
    lane_of_test,
    places_of,
    plain,
    promises,
    statements,
    statements_in,
)

DOCUMENTS = ("RUN-LIFE", "SECURITY")
PROMISES = promises(TABLE.read_text())


def row(promise: Promise) -> str:
    """Return how the table begins a promise, for messages."""
    return f'tests/{TABLE.name}, [[{promise.document}]] says = "{promise.quotation}"'


def test_every_quotation_stands_in_its_document() -> None:
    wrong = list(misquoted(PROMISES))
    assert not wrong, "\n".join(wrong)


def misquoted(listed: Iterable[Promise]) -> Iterator[str]:
    """Yield a message for each quotation that is not in exactly one statement."""
    for promise in listed:
        count = sum(plain(promise.quotation) in statement for statement in statements(promise.document))
        if count != 1:
            yield (
                f"{row(promise)}: {count} statements of docs/{promise.document}.md have these words; quote what it "
                f"says now, and check that {promise.evidence} still holds it"
            )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_statement_of_a_document_is_quoted(document: str) -> None:
    wrong = list(unquoted(document, PROMISES))
    assert not wrong, "\n".join(wrong)


def unquoted(document: str, listed: Iterable[Promise]) -> Iterator[str]:
    """Yield a message for each statement that no promise quotes."""
    quotations = [plain(promise.quotation) for promise in listed if promise.document == document]
    for statement in statements(document):
        if not any(quotation in statement for quotation in quotations):
            yield (
                f"tests/{TABLE.name} quotes nothing of this statement of docs/{document}.md; add a [[{document}]] for "
                f"each promise in it: {statement}"
            )


def test_every_promise_names_a_test_that_is_there_and_its_lane() -> None:
    wrong = list(misplaced(PROMISES))
    assert not wrong, "\n".join(wrong)


def misplaced(listed: Iterable[Promise]) -> Iterator[str]:
    """Yield a message for each test that does not exist or is in another lane."""
    for promise in listed:
        lane = promise.kind if promise.kind in REASONS else lane_of_test(promise.evidence)
        if lane is None:
            candidates = places_of(promise.evidence.rpartition("::")[2]) or ["the one that holds this promise now"]
            yield f"{row(promise)}: there is no {promise.evidence}; name {' or '.join(candidates)}"
        elif lane != promise.kind:
            yield f'{row(promise)}: its test is in another lane; write {lane} = "{promise.evidence}"'


def test_no_promise_is_listed_twice() -> None:
    quoted = [(promise.document, plain(promise.quotation)) for promise in PROMISES]
    assert sorted(set(quoted)) == sorted(quoted)


# The comparisons above can fail.

UNHELD = Promise("RUN-LIFE", "The last three never change.", "test", f"tests/test_promises.py::{__name__}")
"""Its test does not exist."""
DOCUMENT = """# Title

A *paragraph* of
two lines, with `code` and a [link](TO.md#there):

- a bullet
  that goes on,
- another
  ```
  # code
  - of it
  ```

| a | b |
|---|---|
| `x` | means y |
"""


def test_statements_are_paragraphs_bullets_rows_and_blocks_of_code() -> None:
    assert list(statements_in(DOCUMENT)) == [
        "A paragraph of two lines, with code and a link:", "a bullet that goes on,", "another", "# code - of it",
        "x means y",
    ]  # fmt: skip


def test_each_difference_is_named_with_its_row() -> None:
    (missing,) = misplaced([UNHELD])
    assert missing.startswith(f'tests/promises.toml, [[RUN-LIFE]] says = "{UNHELD.quotation}": there is no ')
    other = Promise("RUN-LIFE", UNHELD.quotation, "long", "tests/test_promises.py::test_no_promise_is_listed_twice")
    (misjudged,) = misplaced([other])
    assert misjudged.endswith(f'write test = "{other.evidence}"')
    assert list(misquoted([UNHELD])) == [] and len(list(unquoted("RUN-LIFE", [UNHELD]))) > 50
    (drifted,) = misquoted([Promise("RUN-LIFE", "The last four never change.", "test", "x")])
    assert ": 0 statements of docs/RUN-LIFE.md have these words" in drifted


@pytest.mark.parametrize("line", ['says = "a"', 'says = "a"\ntest = ""', 'says = "a"\ntest = "b"\nreal = "c"'])
def test_a_line_that_is_no_promise_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="write `says`, and one of test, real, long, untested, no_promise"):
        promises(f"[[RUN-LIFE]]\n{line}")
