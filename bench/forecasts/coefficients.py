"""Coefficients of the learner's published regression, fitted to folders of recorded traces: `make bench
ONLY=coefficients`.

`REBALANCER_TRACES` names the folders, separated by colons. Prints the coefficients of each quantile, and those of the
90th percentile without each folder: what changes much there is a property of that folder.
"""

import os
import sys
from pathlib import Path

import numpy as np

from rebalancer.cli.traces import read_traces
from rebalancer.forecast.backtest.backtest import FIRST_PREDICTION, ORIGIN_STEPS, TraceRun
from rebalancer.forecast.backtest.traces import cluster_of_traces
from rebalancer.forecast.learning.learner import PUBLISHED
from rebalancer.forecast.learning.levels import Levels
from rebalancer.forecast.learning.quantile_regression import fit
from rebalancer.forecast.predictors import COMBINED
from rebalancer.model.measured.history import SLOTS
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.forecast import HISTORY_DAYS, Forecast

WEAK = 1e-6
"""The published coefficients count as good as nothing."""


def main() -> int:
    """Print the coefficients; 0 always, there is no aim."""
    folders = [Path(each) for each in os.environ.get("REBALANCER_TRACES", "").split(os.pathsep) if each]
    if not folders:
        print("coefficients: REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)")
        return 0
    rows = [_rows(folder) for folder in folders]
    for share, published in PUBLISHED.items():
        print(f"{share:4}  published {_text(np.array(published[1:]))}\n      fitted    {_text(_fitted(rows, share))}")
    for number, folder in enumerate(folders if len(folders) > 1 else []):
        print(f"0.9 without {folder.name}: {_text(_fitted(rows[:number] + rows[number + 1 :], 0.9))}", flush=True)
    return 0


def _rows(folder: Path) -> tuple[Floats, Floats, Floats]:
    """(rows, 8) columns, (rows,) actuals and (rows,) capacities, as the regression takes them."""
    run = TraceRun(cluster_of_traces(read_traces(folder), 1), Forecast(), (COMBINED,))
    for at in range(FIRST_PREDICTION * SLOTS, (run.cluster.days - 1) * SLOTS + 1, ORIGIN_STEPS):
        run.predict(at)
    assert run.learned is not None
    features, actual, capacity = (
        np.concatenate([getattr(each, name) for each in run.learned.outcomes])
        for name in ("features", "actual", "capacity")
    )
    levels = Levels.decoded(features)
    known = np.isfinite(actual) & (levels.days == HISTORY_DAYS)
    # without the column of ones: days that are all equal are forecast as they are
    return levels.columns[known, 1:], (actual / levels.level - 1)[known], (capacity / levels.level - 1)[known]


def _fitted(rows: list[tuple[Floats, Floats, Floats]], share: float) -> Floats:
    """Coefficients over all folders, each of the same weight."""
    columns, actual, cap = (np.concatenate([each[part] for each in rows]) for part in range(3))
    weights = np.concatenate([np.full(len(each[1]), 1 / len(each[1])) for each in rows])
    toward = np.array(PUBLISHED[share])[1:]
    return fit(columns, actual, weights=weights, cap=cap, share=share, toward=toward, strength=WEAK)


def _text(coefficients: Floats) -> str:
    return " ".join(f"{each:6.2f}" for each in coefficients)


if __name__ == "__main__":
    sys.exit(main())
