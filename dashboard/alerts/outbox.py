"""Send the messages that are due, a few at a time, each by a separate program: no request waits for a receiver."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from dashboard.alerts.message_sender import LIMIT_S
from db.alerts import events
from db.alerts.events import OutgoingMessage
from db.engine import Store
from db.metrics import curves
from db.metrics.series_names import main_loss
from domain.alerts.message import Message, SendOutcome, message
from domain.alerts.rules import parse_rule
from domain.alerts.targets import masked_target
from domain.messages import Point
from domain.text.formats import number

if TYPE_CHECKING:
    from PIL import ImageDraw
import base64
import secrets
from datetime import UTC, datetime

from standardwebhooks import Webhook


class AlertOutbox:
    """Claims what is due and sends it in threads of its own."""

    def __init__(self, store: Store, clock: Callable[[], float], sender: Sender, url: Callable[[], str]) -> None:
        self._store, self._clock, self._sender, self._url = store, clock, sender, url
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="alerts")
        self._busy_targets: set[str] = set()
        self._lock = threading.Lock()

    def send_due(self) -> None:
        """Start to send what is due, as far as threads are free; return at once."""
        with self._lock:
            busy = set(self._busy_targets)
        for outgoing in events.claim(self._store, self._clock(), busy, MOST_AT_ONCE - len(busy)):
            with self._lock:
                self._busy_targets.add(outgoing.target)
            self._threads.submit(self._send, outgoing)

    def close(self) -> None:
        """End all sending; what was being sent may have arrived."""
        self._sender.close()
        self._threads.shutdown(cancel_futures=True)

    def _send(self, outgoing: OutgoingMessage) -> None:
        shown = masked_target(outgoing.target)
        try:
            outcome, problem = self._attempt(outgoing)
            events.settle(self._store, outgoing, outcome, problem, self._clock())
            log.info("alert %s to %s: %s%s", outgoing.alert_id, shown, outcome, f", {problem}" if problem else "")
        except SenderClosed:
            events.settle(self._store, outgoing, SendOutcome.UNAVAILABLE, "The dashboard ended.", self._clock())
        except Exception:  # the store may be away: what is claimed is settled later
            if self._store.trouble is None:
                log.exception("alert %s to %s was not settled", outgoing.alert_id, shown)
        finally:
            with self._lock:
                self._busy_targets.discard(outgoing.target)

    def _attempt(self, outgoing: OutgoingMessage) -> tuple[SendOutcome, str | None]:
        url, picture = self._url(), picture_of(self._store, outgoing)
        content = message(outgoing.message_id, outgoing.rule, outgoing.items, url, picture)
        result = self._sender.run(self._request(outgoing, content))
        if result is None:
            return SendOutcome.UNCLEAR, "There was no answer in time; it may have arrived."
        return SendOutcome(result["outcome"]), result.get("problem")

    def _request(self, outgoing: OutgoingMessage, content: Message) -> dict[str, Any]:
        request = {"action": "send", "target": outgoing.target}
        if outgoing.secret is None:
            return request | {"title": content.title, "body": content.body, "picture": content.picture}
        body, headers = signed(content, outgoing.secret, self._clock())
        return request | {"body": body.decode(), "headers": headers}


log = logging.getLogger("rankzero")
MOST_AT_ONCE = 4
POINTS = 400
"""Of the curve in the picture."""
PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


class SenderClosed(Exception):
    """The dashboard is shutting down."""


class Sender:
    """Runs the sending program; safe to use from several threads."""

    def __init__(self, allow_private: bool, limit_s: float = LIMIT_S) -> None:
        self._allow_private, self._limit_s = allow_private, limit_s
        self._programs: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, request: dict[str, Any]) -> dict[str, str] | None:
        """Return what the program answers; None when it was killed or broke. Raises SenderClosed."""
        with self._lock:
            if self._is_closed:
                raise SenderClosed
            program = subprocess.Popen(
                [sys.executable, "-P", "-m", "dashboard.alerts.message_sender"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environment(),
            )  # fmt: skip
            self._programs.add(program)
        try:
            text = json.dumps(request | {"allow_private": self._allow_private})
            output, _ = program.communicate(text.encode(), self._limit_s)
            return dict(json.loads(output.strip().rpartition(b"\n")[2])) if program.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None
        finally:
            with program:
                program.kill()
            with self._lock:
                self._programs.discard(program)

    def close(self) -> None:
        """Kill the programs that still run, and start none any more."""
        with self._lock:
            self._is_closed = True
            for program in self._programs:
                program.kill()

    def _environment(self) -> dict[str, str]:
        """The environment without our secrets, and without proxies, which would reach the server's own network."""
        hidden = frozenset() if self._allow_private else PROXIES
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RANKZERO_") and name.lower() not in hidden
        }


def picture_of(store: Store, outgoing: OutgoingMessage) -> bytes | None:
    """The curve of a message's first run as a PNG; None where there is none, or it cannot be drawn."""
    run_id = outgoing.items[0].run_id
    if run_id is None or outgoing.rule == events.TEST_EVENT:
        return None
    try:
        names = curves.series_names(store, run_id, "all")
        name = parse_rule(outgoing.rule).series or main_curve(names)
        drawn = curves.series(store, run_id, [name] if name else [], "all", max_points=POINTS).get(name or "")
        return png(f"{name}", drawn.points if drawn else [])
    except Exception:  # a message without a picture is better than none
        log.exception("the picture of an alert about run %s could not be drawn", run_id)
        return None


def main_curve(names: Sequence[str]) -> str | None:
    """The training loss that the script logged, else the one that it printed."""
    logged = [name for name in names if not name.startswith(("probe/", "printed/", "node"))]
    return main_loss(logged) or main_loss([name for name in names if name.startswith("printed/")])


# Draw a curve as a small PNG for a message.

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


# Sign the messages to webhooks as https://www.standardwebhooks.com describes.

SECRET_BYTES = 32


def new_secret() -> str:
    """A new secret of a webhook."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed(content: Message, secret: str, now: float) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a webhook that is sent now."""
    body = json.dumps(content.content, ensure_ascii=False)
    return body.encode(), {
        "Content-Type": "application/json",
        "webhook-id": content.id,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": Webhook(secret).sign(content.id, datetime.fromtimestamp(now, UTC), body),
    }
