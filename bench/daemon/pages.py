"""What the dashboard's pages cost: `python -m bench.daemon.pages [--nodes N]`.

The running daemon of `bench.daemon.bench` at 5,000 nodes and 150,000 pods, with a warm cache and a few evictions. Each
page is asked for after a pause, when what the dashboard keeps is due to be renewed, and again at once: CPU seconds of
the daemon from the request to the answer (user and system, all its threads), the middle of some turns. The seconds of
a wait are not counted, so a busy machine disturbs little. Prints one JSON object a line; exit code 1 when an aim is
missed.
"""

import argparse
import json
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path

from bench.daemon.bench import Running, daemon
from rebalancer.dashboard.nodes import FRESH_SECONDS

NODES, ALERTS, TURNS = 5_000, 2, 3
AIM_SECONDS = 1.0
AIM_FIRST_PAGE_SECONDS = 0.3
PAUSE_SECONDS = FRESH_SECONDS + 2.0
PAGES = {
    "overview": "/",
    "nodes": "/nodes",
    "node": "/nodes/{node}",
    "evictions": "/evictions",
    "cycles": "/cycles",
    "limits": "/limits",
    "services": "/services",
    "report": "/reports",
    "search": "/search?q=a",
    "policy": "/policy",
}


def cpu_seconds(pid: int) -> float:
    """User and system, of all threads, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(running: Running, path: str) -> tuple[float, float]:
    """(CPU seconds, seconds) of one page."""
    before, began = cpu_seconds(running.pid), time.perf_counter()
    with urllib.request.urlopen(running.url + path, timeout=60) as answer:
        answer.read()
    return cpu_seconds(running.pid) - before, time.perf_counter() - began


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, help="with 30 pods each")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="seconds before each page")
    parser.add_argument("--only", choices=PAGES, action="append", help="measure this page; may be repeated")
    arguments = parser.parse_args()
    missed = False
    with daemon(pods=30 * arguments.nodes, nodes=arguments.nodes) as (running, warm):
        for node in warm[:ALERTS]:
            running.alert(node)
        for name in arguments.only or PAGES:
            path = PAGES[name].format(node=warm[0])
            late, again = [], []
            for _ in range(arguments.turns):
                time.sleep(arguments.pause)
                late.append(ask(running, path))
                again.append(ask(running, path))
            for what, took, aim in (
                (f"{name}, after a pause", late, AIM_FIRST_PAGE_SECONDS if path == "/" else AIM_SECONDS),
                (f"{name}, again", again, AIM_FIRST_PAGE_SECONDS if path == "/" else AIM_SECONDS),
            ):
                cpu, wall = (statistics.median(each) for each in zip(*took, strict=True))
                holds = cpu <= aim
                missed |= not holds
                line = {"bench": "pages", "figure": what, "value": round(cpu, 3), "unit": "CPU s", "aim": aim}
                print(json.dumps(line | {"holds": holds, "seconds": round(wall, 3)}), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
