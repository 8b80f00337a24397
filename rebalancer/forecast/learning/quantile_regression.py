"""Linear quantile regression toward known coefficients, by iteratively reweighted least squares.

An actual at the cap of its row is a lower bound, as in censored regression (Powell 1986): a prediction over the cap is
not wrong there.
"""

import numpy as np

from rebalancer.model.notation.arrays import Floats

ITERATIONS = 12
LEAST_ERROR = 3e-3
"""Errors under this share of the level weigh alike, so that the weights stay finite."""
RIDGE = 1e-3


def fit(
    columns: Floats,
    actual: Floats,
    *,
    weights: Floats,
    cap: Floats,
    share: float,
    toward: Floats,
    strength: float,
) -> Floats:
    """(columns,) coefficients of the quantile `share` of `actual` (rows,) given `columns` (rows, columns).

    `toward` (columns,) counts as much as `strength` units of `weights` (rows,), in the metric of the rows' own
    predictions.
    """
    if not len(actual):
        return toward
    metric = (columns * weights[:, None]).T @ columns / max(float(weights.sum()), 1e-9)
    penalty = strength * (metric + RIDGE * np.eye(len(toward)))
    scale = float(np.median(np.abs(actual - columns @ toward))) + 0.02
    weights = weights / scale
    found = toward
    for _ in range(ITERATIONS):
        predicted = columns @ found
        error = actual - predicted
        pull = weights * np.where(error > 0, share, 1.0 - share) / np.maximum(np.abs(error), LEAST_ERROR)
        pull = np.where((predicted >= cap) & (actual >= cap), 0.0, pull)
        pulled = columns * pull[:, None]
        found = _solved(pulled.T @ columns + penalty, pulled.T @ actual + penalty @ toward)
    return found


def _solved(matrix: Floats, right: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
