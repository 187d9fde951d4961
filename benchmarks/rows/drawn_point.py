"""From `add_scalar` in rank 0 to the painted point in Chromium, against TensorBoard on the same event files."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import httpx2
import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.rows.start import started
from tests.end_to_end.browsers import CHROMIUM, QUIET
from tests.end_to_end.product import Product, free_port, wait_for

SCRIPT = Path(__file__).parents[1] / "scripts" / "pulse.py"
PER_SECOND = 10
POLL_S = 0.25
"""How often TensorBoard's server is asked: its page does so only when it is reloaded."""
# The value beside the title changes in the very task that draws; a message posted then arrives after painting.
WATCH = """value => {
    window.painted = {};
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => { window.painted[data] ??= Date.now() / 1000; };
    new MutationObserver(() => port2.postMessage(value.title.split(' = ')[1]))
        .observe(value, { attributes: true, attributeFilter: ['title'] });
}"""
MOST_MS, LEAST_TIMES, MOST_S, PATIENCE_MS = 60, 10, 180, 120_000
Times = dict[int, float]
"""When each step was seen, in seconds since 1970."""


def measure(quick: bool) -> Iterator[Figure]:
    """95th percentiles, by turns, so that neither takes processor time from the other; all share one clock."""
    seconds, rounds = (5, 1) if quick else (30, 3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        run = partial(_launched, product, Path(folder), count(), seconds)
        acts = {"ours": lambda: _ours_ms(product, *run()), "theirs": lambda: _theirs_ms(product, run)}
        latencies = in_turns(acts, rounds)
    ours, theirs = latencies.values()
    what, middle = "add_scalar to the drawn point, p95", f"{Spread.of(ours).median:.0f} ms"
    yield Figure(what, middle, "a limit", f"{MOST_MS} ms", Spread.of(o / MOST_MS for o in ours), 1, "less")
    against = f"{Spread.of(theirs).median:,.0f} ms"
    yield Figure(what, middle, "TensorBoard's server, asked for it", against, ratios(theirs, ours), LEAST_TIMES)


def _launched(product: Product, folder: Path, numbers: Iterator[int], seconds: int) -> tuple[str, Path]:
    """A run that logs so long once its first point is watched; where it notes when it logged each step."""
    out = folder / f"{next(numbers)}.json"
    args = [str(out), "--begin", str(_begin(out)), "--seconds", str(seconds), "--per-second", str(PER_SECOND)]
    return product.launch(SCRIPT, gpus_per_node=1, args=args), out


def _ours_ms(product: Product, run_id: str, out: Path) -> float:
    """Milliseconds until 95 % of the points were painted."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        logged, painted = _logged_and_painted(page, product, run_id, out)
        browser.close()
    return _p95_ms(logged, painted)


def _theirs_ms(product: Product, run: Callable[[], tuple[str, Path]]) -> float:
    """Milliseconds until TensorBoard, which serves already, could have shown 95 % of them."""
    with _tensorboard(product.data / "runs") as address:
        run_id, out = run()
        with _watched(address, run_id) as seen:
            wait_for(lambda: seen, "TensorBoard to have the first point", MOST_S)
            _begin(out).touch()
            logged = _logged(out)
            wait_for(lambda: max(logged) in seen, "TensorBoard to have the last point", MOST_S)
    return _p95_ms(logged, seen)


def _begin(out: Path) -> Path:
    """The file that lets a script log on: its first point is seen, however long that took."""
    return out.with_suffix(".begin")


def _logged(out: Path) -> Times:
    """Wait for the end of the script, and read when it logged each step."""
    wait_for(out.exists, "the script to end", MOST_S)
    return {int(step): at for step, at in json.loads(out.read_text()).items()}


def _logged_and_painted(page: Page, product: Product, run_id: str, out: Path) -> tuple[Times, Times]:
    page.goto(f"{product.url}/?token={product.token()}")
    page.goto(f"{product.url}/run?id={run_id}")
    value = page.locator('.card[data-series="pulse"] .value')
    value.wait_for(timeout=PATIENCE_MS)
    value.evaluate(WATCH)
    _begin(out).touch()
    logged = _logged(out)
    page.wait_for_function("last => window.painted[last]", arg=max(logged), timeout=PATIENCE_MS)
    painted: dict[str, float] = page.evaluate("window.painted")
    return logged, {int(step): at for step, at in painted.items()}


def _p95_ms(logged: Times, seen: Times) -> float:
    """Points that shared a frame or an answer with a later one were seen with it."""
    latencies = [
        1000 * (seen[step] - logged[each])
        for before, step in itertools.pairwise(sorted(seen))
        for each in range(before + 1, step + 1)
    ]
    return float(np.percentile(latencies, 95))


@contextmanager
def _tensorboard(logs: Path) -> Iterator[str]:
    """Serve the runs' event files as TensorBoard does; yields its address once it answers."""
    address = f"http://127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(logs),
        "--port",
        address.rpartition(":")[2],
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: _runs(address) is not None, "TensorBoard to answer")
            yield address
        finally:
            server.terminate()


def _runs(address: str) -> list[str] | None:
    try:
        return list(httpx2.get(f"{address}/data/runs", timeout=10).json())
    except (httpx2.TransportError, ValueError):
        return None


@contextmanager
def _watched(address: str, run_id: str) -> Iterator[Times]:
    """Note meanwhile when TensorBoard's server knows which step of a run."""
    seen: Times = {}
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(address, run_id, seen, ended))
    watching.start()
    try:
        yield seen
    finally:
        ended.set()
        watching.join()


def _watch(address: str, run_id: str, seen: Times, ended: threading.Event) -> None:
    while not ended.wait(POLL_S):
        for name in _runs(address) or []:
            query = {"run": name, "tag": "pulse"}
            with suppress(httpx2.TransportError, ValueError, IndexError):
                if name.startswith(run_id):
                    answer = httpx2.get(f"{address}/data/plugin/scalars/scalars", params=query, timeout=10)
                    seen.setdefault(int(answer.json()[-1][1]), time.time())
