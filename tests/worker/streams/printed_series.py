"""Points of printed text, by tag, and progress bars to print."""

from __future__ import annotations

from worker.streams.printed import EPOCH_TAG, TOTAL_EPOCHS_TAG, TOTAL_STEPS_TAG, PrintedLines

ABOUT_LENGTH = (EPOCH_TAG, TOTAL_STEPS_TAG, TOTAL_EPOCHS_TAG)


def told_by(text: str) -> dict[str, list[tuple[int, float]]]:
    """All points of a whole output: tag -> [(step, value)]."""
    used, series = PrintedLines().feed(text.encode(), 0.0)
    assert used == len(text.encode())
    return {tag: [(step, value) for step, value, _ in points] for tag, points in series.items()}


def series_of(text: str) -> dict[str, list[tuple[int, float]]]:
    """What was measured: all but the epoch and the numbers of steps and epochs."""
    return {tag: points for tag, points in told_by(text).items() if tag not in ABOUT_LENGTH}


def values_of(line: str) -> dict[str, tuple[int, float]]:
    return {tag: points[0] for tag, points in series_of(f"{line}\n").items()}


def bar(step: int, total: int, postfix: str, title: str = "") -> str:
    """A picture of a progress bar, as tqdm prints it."""
    done = 100 * step // total
    return f"\r{title}{done:3}%|{'█' * (done // 10):10}| {step}/{total} [00:10<01:20, 10.00it/s, {postfix}]"
