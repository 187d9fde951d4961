"""The picture of a curve, read back pixel by pixel."""

from __future__ import annotations

import math
from io import BytesIO

import pytest
from PIL import Image

from dashboard.alerts.outbox import HEIGHT, WIDTH, png
from domain.messages import Point


def columns_with_line(points: list[Point]) -> dict[int, list[int]]:
    """The pixels of the line, by column."""
    content = png("digits · train/loss", points)
    assert content is not None
    with Image.open(BytesIO(content)) as image:
        assert image.size == (WIDTH, HEIGHT)
        bands = image.load()
        pixels = {x: [y for y in range(HEIGHT) if bands[x, y][2] - bands[x, y][0] > 60] for x in range(WIDTH)}
    return {x: ys for x, ys in pixels.items() if ys}


def test_a_falling_curve_goes_from_the_upper_left_to_the_lower_right() -> None:
    line = columns_with_line([(step, 100.0 - step, 0.0) for step in range(100)])
    first, last = min(line), max(line)
    assert first < 80 and last > WIDTH - 30
    assert min(line[first]) < 60 and max(line[last]) > HEIGHT - 60


def test_values_that_are_not_finite_are_a_gap() -> None:
    values = [1.0] * 40 + [math.nan, math.inf] * 10 + [2.0] * 40
    line = columns_with_line([(step, value, 0.0) for step, value in enumerate(values)])
    assert not any(WIDTH * 0.48 < x < WIDTH * 0.58 for x in line) and min(line) < 100 < 550 < max(line)


@pytest.mark.parametrize("points", [[], [(1, 1.0, 0.0)], [(n, math.nan, 0.0) for n in range(9)]])
def test_nothing_is_drawn_without_a_curve(points: list[Point]) -> None:
    assert png("x", points) is None


@pytest.mark.parametrize("values", [[1.0, 1.0], [1e308, -1e308, 1.0, 2.0], [0.0, 5e-324]])
def test_odd_values_and_names_are_drawn(values: list[float]) -> None:
    assert png("\x00漢字 " * 50, [(7, value, 0.0) for value in values])
