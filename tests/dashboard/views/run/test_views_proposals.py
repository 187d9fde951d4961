"""The findings of the Run page: a pattern is proposed where it reads more than the line that the finding shows."""

from __future__ import annotations

import pytest

from domain.messages import Finding
from domain.series.printed_pattern import NOT_READ, SUCH_AS
from tests.dashboard.pages import served

ALIKE = [f"{step} - 56.{step} words/s - MLM-en: 0.{step}" for step in (5, 10, 15)]


@pytest.mark.parametrize(
    ("lines", "proposed"),
    [
        (ALIKE, "{step} - {words/s} words/s - MLM-en: {MLM-en}"),
        (ALIKE[:2], ""),
        ([ALIKE[0], "loss of ana: 0.5", "loss of ben: 0.25"], ""),
    ],
)
def test_a_pattern_is_proposed_if_it_fits_two_further_lines(tmp_path, lines: list[str], proposed: str) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("a", 100, gpus_per_node=1)
        pages.seed.start("a", 90)
        pages.seed.file(pages.service.files, "a", "logs/rank0.out", "\n".join([*lines, ""]).encode())
        pages.seed.find("a", Finding(kind=NOT_READ, evidence=f"3 printed lines hold values, {SUCH_AS}{lines[0]}"))
        page = pages.open("run", id=pages.seed.runs["a"])
        (field,) = [field for field in page.text_input if (field.key or "").startswith("printed_pattern_")]
        assert (field.value or "") == proposed
