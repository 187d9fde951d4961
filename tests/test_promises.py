"""Every promise of the documents that users rely on most names the test that holds it, and the lane of this test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.promises import (
    REASONS,
    TABLE,
    Promise,
    lane_of_test,
    lanes_in,
    places_of,
    plain,
    promises,
    statements,
    statements_in,
)

DOCUMENTS = ("RUN-LIFE", "SECURITY")
PROMISES = promises(TABLE.read_text())


def row(promise: Promise) -> str:
    """Where a promise stands in the table."""
    return f'tests/{TABLE.name}, [[{promise.document}]] says = "{promise.says}"'


def test_every_quotation_stands_in_its_document() -> None:
    wrong = list(misquoted(PROMISES))
    assert not wrong, "\n".join(wrong)


def misquoted(listed: Iterable[Promise]) -> Iterator[str]:
    """Say which quotations are not the words of one statement."""
    for promise in listed:
        count = sum(plain(promise.says) in statement for statement in statements(promise.document))
        if count != 1:
            yield (
                f"{row(promise)}: {count} statements of docs/{promise.document}.md have these words; quote what it "
                f"says now, and see that {promise.held_by} still holds it"
            )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_statement_of_a_document_is_quoted(document: str) -> None:
    wrong = list(unquoted(document, PROMISES))
    assert not wrong, "\n".join(wrong)


def unquoted(document: str, listed: Iterable[Promise]) -> Iterator[str]:
    """Say which statements nobody quotes."""
    quotations = [plain(promise.says) for promise in listed if promise.document == document]
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
    """Say which tests are not there, or are in another lane."""
    for promise in listed:
        lane = promise.kind if promise.kind in REASONS else lane_of_test(promise.held_by)
        if lane is None:
            found = places_of(promise.held_by.rpartition("::")[2]) or ["the one that holds this promise now"]
            yield f"{row(promise)}: there is no {promise.held_by}; name {' or '.join(found)}"
        elif lane != promise.kind:
            yield f'{row(promise)}: its test is in another lane; write {lane} = "{promise.held_by}"'


def test_no_promise_is_listed_twice() -> None:
    quoted = [(promise.document, plain(promise.says)) for promise in PROMISES]
    assert sorted(set(quoted)) == sorted(quoted)


# What the comparisons above see.

HELD = Promise("RUN-LIFE", "The last three never change.", "test", f"tests/test_promises.py::{__name__}")
"""Held by a test that there is not."""
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
REAL = "pytest.mark." + "real"
"""In one word it would make this a file of `make test-real`."""
SOURCE = f"""
import pytest
LONG = pytest.mark.long
@LONG
def test_named(): ...
@{REAL}
class TestClass:
    async def test_within(self): ...
@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long), 2])
def test_some_cases(one): ...
@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long)])
def test_all_cases(one): ...
@pytest.mark.parametrize("one", [pytest.param(x, marks=pytest.mark.long) for x in range(9)])
def test_computed_cases(one): ...
"""


def test_statements_are_paragraphs_bullets_rows_and_blocks_of_code() -> None:
    assert list(statements_in(DOCUMENT)) == [
        "A paragraph of two lines, with code and a link:", "a bullet that goes on,", "another", "# code - of it",
        "x means y",
    ]  # fmt: skip


def test_marks_are_those_of_functions_classes_modules_and_all_cases() -> None:
    lanes = {
        "test_named": "long", "test_within": "real", "test_some_cases": "test", "test_all_cases": "long",
        "test_computed_cases": "test",
    }  # fmt: skip
    assert lanes_in(SOURCE) == lanes
    marked = lanes_in(f"{SOURCE}\npytestmark = [{REAL}, pytest.mark.skipif(False, reason='x')]")
    assert marked == {name: "long" if lane == "long" else "real" for name, lane in lanes.items()}


def test_what_differs_is_named_with_its_row() -> None:
    (missing,) = misplaced([HELD])
    assert missing.startswith(f'tests/promises.toml, [[RUN-LIFE]] says = "{HELD.says}": there is no ')
    other = Promise("RUN-LIFE", HELD.says, "long", "tests/test_promises.py::test_no_promise_is_listed_twice")
    (misjudged,) = misplaced([other])
    assert misjudged.endswith(f'write test = "{other.held_by}"')
    assert list(misquoted([HELD])) == [] and len(list(unquoted("RUN-LIFE", [HELD]))) > 50
    (drifted,) = misquoted([Promise("RUN-LIFE", "The last four never change.", "test", "x")])
    assert ": 0 statements of docs/RUN-LIFE.md have these words" in drifted


@pytest.mark.parametrize("line", ['says = "a"', 'says = "a"\ntest = ""', 'says = "a"\ntest = "b"\nreal = "c"'])
def test_a_line_that_is_no_promise_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="write `says`, and one of test, real, long, untested, no_promise"):
        promises(f"[[RUN-LIFE]]\n{line}")
