"""`python -m bench [NAME]`: all benchmarks, or one; exit code 1 when an aim is missed."""

import sys

from bench import (
    daemon_bench,
    daemon_cache,
    forecast,
    history,
    landing,
    ledger_bench,
    list_bench,
    report,
    strategies,
)

BENCHES = {
    "list": list_bench.main,
    "ledger": ledger_bench.main,
    "landing": landing.main,
    "cache": daemon_cache.main,
    "daemon": daemon_bench.main,
    "forecast": forecast.main,
    "history": history.main,
    "report": report.main,
    "strategies": strategies.main,
}


def main() -> int:
    """Run what was asked for."""
    wanted = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in wanted if name not in BENCHES]:
        sys.exit(f"no benchmark {unknown[0]}: there are {', '.join(BENCHES)}")
    sys.argv[1:] = []
    return max(BENCHES[name]() for name in wanted)


if __name__ == "__main__":
    sys.exit(main())
