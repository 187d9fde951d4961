"""From `add_scalar` in rank 0 to the painted point in Chromium, against TensorBoard on the same event files."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.figures import Figure, Spread
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
MOST_MS, LEAST_TIMES = 60, 10
Times = dict[int, float]
"""When each step was seen, in seconds since 1970."""


def measure(quick: bool) -> Iterator[Figure]:
    """95th percentiles of the same points; processes and browser share one clock."""
    seconds, rounds = (5, 1) if quick else (30, 3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        address = running.enter_context(_tensorboard(product.data / "runs"))
        outs = [Path(folder) / f"{turn}.json" for turn in range(rounds)]
        latencies = [_latencies(product, address, out, seconds) for out in outs]
    ours, theirs = ([*values] for values in zip(*latencies, strict=True))
    what, middle = "add_scalar to the drawn point, p95", f"{Spread.of(ours).median:.0f} ms"
    yield Figure(what, middle, "a limit", f"{MOST_MS} ms", Spread.of(o / MOST_MS for o in ours), 1, "less")
    times = Spread.of(their / own for own, their in zip(ours, theirs, strict=True))
    against = f"{Spread.of(theirs).median:,.0f} ms"
    yield Figure(what, middle, "TensorBoard's server, asked for it", against, times, LEAST_TIMES)


def _latencies(product: Product, address: str, out: Path, seconds: int) -> tuple[float, float]:
    """Milliseconds until 95 % of the points were painted, and until TensorBoard could have shown them."""
    args = [str(out), "--seconds", str(seconds), "--per-second", str(PER_SECOND)]
    run_id = product.launch(SCRIPT, gpus_per_node=1, args=args)
    with sync_playwright() as playwright, _watched(address, run_id) as theirs:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        ours = _painted(page, product, run_id, out, seconds)
        browser.close()
    logged = {int(step): at for step, at in json.loads(out.read_text()).items()}
    return _p95_ms(logged, ours), _p95_ms(logged, theirs)


def _painted(page: Page, product: Product, run_id: str, out: Path, seconds: int) -> Times:
    page.goto(f"{product.url}/?token={product.token()}")
    page.goto(f"{product.url}/run?id={run_id}")
    value = page.locator('.card[data-series="pulse"] .value')
    value.wait_for(timeout=120_000)
    value.evaluate(WATCH)
    wait_for(out.exists, "the script to end", seconds + 120)
    page.wait_for_timeout(8000)  # TensorBoard reads its files every five seconds
    painted: dict[str, float] = page.evaluate("window.painted")
    return {int(step): at for step, at in painted.items()}


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
        return list(httpx.get(f"{address}/data/runs", timeout=10).json())
    except (httpx.TransportError, ValueError):
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
            with suppress(httpx.TransportError, ValueError, IndexError):
                if name.startswith(run_id):
                    answer = httpx.get(f"{address}/data/plugin/scalars/scalars", params=query, timeout=10)
                    seen.setdefault(int(answer.json()[-1][1]), time.time())
