"""`python -m bench [NAME [OPTIONS]]`: all benchmarks, or one; exit code 1 when an aim is missed."""

import sys
from itertools import takewhile

from bench import (
    backtest,
    churn,
    coefficients,
    daemon_bench,
    daemon_cache,
    day_bench,
    evictions,
    forecast,
    history,
    journal,
    landing,
    ledger_bench,
    list_bench,
    peer,
    plan_bench,
    replay,
    report,
    scale,
    strategies,
)

BENCHES = {
    "backtest": backtest.main,
    "churn": churn.main,
    "coefficients": coefficients.main,
    "list": list_bench.main,
    "ledger": ledger_bench.main,
    "landing": landing.main,
    "peer": peer.main,
    "plan": plan_bench.main,
    "cache": daemon_cache.main,
    "daemon": daemon_bench.main,
    "day": day_bench.main,
    "evictions": evictions.main,
    "forecast": forecast.main,
    "history": history.main,
    "journal": journal.main,
    "replay": replay.main,
    "report": report.main,
    "scale": scale.main,
    "strategies": strategies.main,
}


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
    return max(BENCHES[name]() for name in wanted)


if __name__ == "__main__":
    sys.exit(main())
