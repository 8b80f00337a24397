"""`python -m bench [NAME [OPTIONS]]`: all benchmarks, or one; exit code 1 when an aim is missed."""

import sys
from importlib import import_module
from itertools import takewhile
from unittest import SkipTest

BENCHES = {
    "backtest": "forecasts.backtest",
    "cache": "lists.cache",
    "churn": "lists.churn",
    "coefficients": "forecasts.coefficients",
    "commands": "daemon.commands",
    "daemon": "daemon.bench",
    "day": "day.bench",
    "evictions": "daemon.evictions",
    "forecast": "forecasts.forecast",
    "gain": "replays.gain",
    "history": "forecasts.history",
    "journal": "store.journal",
    "landing": "plan.landing",
    "ledger": "store.ledger",
    "list": "lists.bench",
    "pages": "daemon.pages",
    "peer": "lists.peer",
    "plan": "plan.bench",
    "remaining": "replays.remaining",
    "replay": "replays.bench",
    "report": "store.report",
    "room": "plan.room",
    "scale": "daemon.scale",
    "spread": "plan.spread",
    "strategies": "plan.strategies",
    "try": "replays.try_out",
    "value": "forecasts.value",
    "week": "replays.week",
}
"""Name -> module with its `main`. Only those that run are imported: some need servers of the tests."""


def main() -> int:
    """Run what was asked for."""
    named = list(takewhile(lambda each: not each.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(named) :]
    if options and len(named) != 1:
        sys.exit(f"{options[0]}: options need the name of one benchmark before them")
    wanted = named or list(BENCHES)
    if unknown := [name for name in wanted if name not in BENCHES]:
        sys.exit(f"no benchmark {unknown[0]}: there are {', '.join(BENCHES)}")
    sys.argv[1:] = options
    return max(map(run, wanted))


def run(name: str) -> int:
    """Exit code of one benchmark; 0, and a line, where a server that it needs is missing."""
    try:
        return int(import_module(f"bench.{BENCHES[name]}").main())
    except SkipTest as missing:
        print(f"{name}: {missing}", file=sys.stderr)
        return 0


if __name__ == "__main__":
    sys.exit(main())
