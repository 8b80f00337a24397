"""Backtest of the forecast on folders of recorded traces: `make bench ONLY=backtest`.

`REBALANCER_TRACES` names the folders, separated by colons. Each series is left out once: seeds recompose the same
series, so the spread that matters is that over series.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

from rebalancer.cli.output.backtest_report import COVERAGE_SLACK, MORE_LOSS, RECALL, less_loss
from rebalancer.cli.traces import read_traces
from rebalancer.forecast.backtest.backtest import backtest
from rebalancer.forecast.predictors import COMBINED
from rebalancer.model.measured.history import Grid

COMPARED = ("lastDay", "max", "decayingHistogram", COMBINED)
MEAN_GAIN = 0.05


def main() -> int:
    """Exit code 1 when an aim is missed, 0 without traces."""
    parser = argparse.ArgumentParser(prog="python -m bench backtest")
    parser.add_argument("--no-leave-one-out", action="store_true", help="leave out the runs without one series each")
    wanted = parser.parse_args()
    folders = [Path(each) for each in os.environ.get("REBALANCER_TRACES", "").split(os.pathsep) if each]
    if not folders:
        print("backtest: REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)")
        return 0
    met, gains = True, []
    print(
        "folder                     less loss  aim     coverage  aim       weekdays       recall  left out one series"
    )
    for folder in folders:
        began = time.process_time()
        traces = read_traces(folder)
        result = backtest(traces, seed=1, only=COMPARED)
        gain, default = less_loss(result), result.score(COMBINED)
        gains.append(gain)
        others = [] if wanted.no_leave_one_out else _without_each(traces)
        weekdays = [each for each in default.weekdays if math.isfinite(each)]
        coverage, recall = default.errors.coverage, default.hot_recall
        met &= gain >= -MORE_LOSS and abs(coverage - result.coverage) <= COVERAGE_SLACK and not recall < RECALL
        spread = f"{min(others):+.1%} to {max(others):+.1%}" if others else "-"
        print(
            f"{folder.name:26s} {gain:+8.1%}  >=-{MORE_LOSS:.0%}  {coverage:8.1%}  {result.coverage:.0%}+-3%  "
            f"{min(weekdays):.0%} - {max(weekdays):.0%}  {recall:6.1%}  {spread}  "
            f"({time.process_time() - began:.0f} CPU s)",
            flush=True,
        )
    mean = sum(gains) / len(gains)
    print(f"mean less loss {mean:+.1%} (aim >= {MEAN_GAIN:.0%})")
    return 0 if met and mean >= MEAN_GAIN else 1


def _without_each(traces: dict[str, Grid]) -> list[float]:
    """Less loss of the default without each of the series."""
    found = []
    for name in traces:
        rest = {other: series for other, series in traces.items() if other != name}
        found.append(less_loss(backtest(rest, seed=1, only=COMPARED)))
    return found


if __name__ == "__main__":
    sys.exit(main())
