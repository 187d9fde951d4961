"""Measure Rankzero against its peers and the machine's limits, and print one table.

    .venv/bin/python -m benchmarks [NAME …] [--quick] [--list] [--write]

Each measurement runs in a process of its own; its rows are written to benchmarks/results/NAME.json, all of them to
benchmarks/RESULTS.md, six of them to the README, and two pictures. Ctrl-C, SIGTERM and SIGHUP end everything that it
started. Peers are installed into benchmarks/peers/.venv when a measurement first needs them.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from pathlib import Path

from benchmarks import figures, pages
from benchmarks.ending import exit_when_asked, run_whole
from benchmarks.table import table
from worker.node.processes import die_with_parent

ROOT = Path(__file__).parent.parent
NAMES = sorted(path.stem for path in (ROOT / "benchmarks" / "rows").glob("[!_]*.py"))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; all without one")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--write", action="store_true", help="only write pages and pictures from the results")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    exit_when_asked()
    if options.list:
        print("\n".join(NAMES))
        return 0
    if options.write:
        pages.write()
        return 0
    if options.only:
        return measure(options.only, options.quick)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no measurement is named {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    return measure_all(options.names or NAMES, options.quick)


def measure(name: str, quick: bool) -> int:
    """Run one measurement in this process, which ends with the one that asked for it."""
    die_with_parent(signal.SIGTERM)
    module = importlib.import_module(f"benchmarks.rows.{name}")
    figures.write(results(quick) / f"{name}.json", [*module.measure(quick)])
    return 0


def results(quick: bool) -> Path:
    """The folder of what was measured."""
    return figures.QUICK_RESULTS if quick else figures.RESULTS


def measure_all(names: list[str], quick: bool) -> int:
    """Run each in a process of its own; the exit code is 1 when one of them failed."""
    failed = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks", "--only", name, *(["--quick"] if quick else [])]
        if run_whole(command, ROOT):
            failed.append(name)
    print(table(results(quick) / f"{name}.json" for name in names if name not in failed))
    if not quick:
        pages.write()
    for name in failed:
        print(f"{name} failed: its output stands above.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
