"""From `add_scalar` in rank 0 to the painted point in Chromium: the whole way through the real product.

    .venv/bin/python benchmarks/draw_latency.py --seconds 30 --per-second 20

Prints the median, the 95th percentile and the largest latency in milliseconds. Process and browser share one
clock; a point counts as drawn when the frame that has it was painted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.end_to_end.product import Product, wait_for

SCRIPT = Path(__file__).parent / "scripts" / "pulse.py"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
# The value beside the title changes in the very task that draws; a message posted then arrives after painting.
WATCH = """value => {
    window.painted = {};
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => { window.painted[data] ??= Date.now() / 1000; };
    new MutationObserver(() => port2.postMessage(value.title.split(' = ')[1]))
        .observe(value, { attributes: true, attributeFilter: ['title'] });
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--per-second", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder) / "data", slots=1)
        product.start()
        try:
            logged, painted = measure(product, Path(folder) / "times.json", options)
        finally:
            product.stop()
            product.clean_up()
    report(logged, painted)


def measure(
    product: Product, out: Path, options: argparse.Namespace
) -> tuple[dict[str, float], dict[str, float]]:
    """When each point was logged, and when it was painted."""
    args = [str(out), "--seconds", str(options.seconds), "--per-second", str(options.per_second)]
    run_id = product.launch(SCRIPT, gpus_per_node=1, args=args)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{product.url}/?token={product.token()}")
        page.goto(f"{product.url}/run?id={run_id}")
        value = page.locator('.card[data-series="pulse"] .value')
        value.wait_for(timeout=120_000)
        value.evaluate(WATCH)
        wait_for(out.exists, "the script to end", options.seconds + 60)
        page.wait_for_timeout(2000)
        painted = page.evaluate("window.painted")
        browser.close()
    return json.loads(out.read_text()), painted


def report(logged: dict[str, float], painted: dict[str, float]) -> None:
    """Points that shared a frame with a later one were painted with it."""
    steps = sorted(int(step) for step in painted)
    latencies_ms = []
    for before, step in itertools.pairwise(steps):
        latencies_ms += [(painted[str(step)] - logged[str(k)]) * 1000 for k in range(before + 1, step + 1)]
    latencies_ms.sort()
    at = [latencies_ms[int(len(latencies_ms) * share)] for share in (0.5, 0.95)]
    print(
        f"{len(latencies_ms)} points: median {at[0]:.0f} ms, p95 {at[1]:.0f} ms, most {latencies_ms[-1]:.0f} ms"
    )


if __name__ == "__main__":
    main()
