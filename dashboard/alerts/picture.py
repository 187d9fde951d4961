"""Draw a curve as a small PNG for a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from domain.messages import Point
from domain.text.formats import number

if TYPE_CHECKING:
    from PIL import ImageDraw

WIDTH, HEIGHT = 640, 280
LEFT, TOP, RIGHT, BOTTOM = 64, 36, 16, 32
"""Margins of the plot, in pixels."""
SCALE = 2
"""Drawn so many times larger, then reduced: lines come out smooth."""
BACKGROUND, TEXT, GRID, LINE = "#ffffff", "#1c2033", "#dfe2ec", "#4549d6"
LINES = 4
LONGEST_TITLE = 60
LARGEST = 1e300
"""Values beyond it, infinities and NaN are gaps."""


@dataclass(frozen=True)
class _Plane:
    """Where steps and values lie on the picture, in pixels before it is reduced."""

    steps: tuple[float, float]
    values: tuple[float, float]

    def x(self, step: float) -> float:
        """Return the pixel of a step."""
        return SCALE * (LEFT + (WIDTH - LEFT - RIGHT) * _share(step, self.steps))

    def y(self, value: float) -> float:
        """Return the pixel of a value."""
        return SCALE * (HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(value, self.values))


def png(title: str, points: Sequence[Point]) -> bytes | None:
    """The picture of a curve; None where it has fewer than two finite points."""
    from PIL import Image, ImageDraw

    finite = [(step, value) for step, value, _ in points if abs(value) < LARGEST]
    if len(finite) < 2:
        return None
    plane = _Plane(_extent([step for step, _ in finite]), _extent([value for _, value in finite]))
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), BACKGROUND)
    draw = ImageDraw.Draw(image)
    _draw_frame(draw, plane, title)
    for part in _parts(points):
        places = [(plane.x(step), plane.y(value)) for step, value in part]
        draw.line(places if len(places) > 1 else places * 2, fill=LINE, width=2 * SCALE, joint="curve")
    content = BytesIO()
    image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).save(content, "PNG", optimize=True)
    return content.getvalue()


def _draw_frame(draw: ImageDraw.ImageDraw, plane: _Plane, title: str) -> None:
    """Draw the title, the lines of some values, and the first and last step."""
    from PIL import ImageFont

    font, bold = ImageFont.load_default(12 * SCALE), ImageFont.load_default(14 * SCALE)
    shown = title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
    draw.text((SCALE * LEFT, SCALE * 8), shown, TEXT, bold)
    low, high = plane.values
    for index in range(LINES):
        value = low + (high - low) * index / (LINES - 1)
        y = plane.y(value)
        draw.line([(SCALE * LEFT, y), (SCALE * (WIDTH - RIGHT), y)], fill=GRID, width=SCALE)
        draw.text((SCALE * (LEFT - 8), y), number(value), TEXT, font, anchor="rm")
    for step, anchor in zip(plane.steps, ("la", "ra"), strict=True):
        draw.text((plane.x(step), SCALE * (HEIGHT - BOTTOM + 8)), f"step {step:.0f}", TEXT, font, anchor=anchor)


def _parts(points: Sequence[Point]) -> Iterator[list[tuple[int, float]]]:
    part: list[tuple[int, float]] = []
    for step, value, _ in points:
        if abs(value) < LARGEST:
            part.append((step, value))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _extent(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _share(value: float, extent: tuple[float, float]) -> float:
    low, high = extent
    return (value - low) / (high - low)
