"""Units of a node CPU query: shares of a node's capacity, or cores."""

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.arrays import Floats

MOST_PLAUSIBLE_SHARE = 1.5
"""Rates exceed 1.0 slightly. Far above it the value is a percentage, or millicores where cores were expected."""


def capacities(nodes: Nodes) -> Floats:
    """(nodes,) CPU capacity in millicores; NaN where it isn't known."""
    return np.where(nodes.cpu_capacity_millicores > 0, nodes.cpu_capacity_millicores, np.nan)


def millicores_per_unit(nodes: Nodes, unit: str) -> Floats:
    """(nodes,) millicores for one unit of the query; NaN for shares of an unknown capacity."""
    return np.full(len(nodes), 1000.0) if unit == "cores" else capacities(nodes)


def check_capacity(shares: Floats, nodes: Nodes, *, field: str) -> None:
    """A capacity in another unit than the amounts: ConfigError when half of the known `shares` (nodes,) are
    impossible."""
    wrong = np.isfinite(shares) & (shares > MOST_PLAUSIBLE_SHARE)
    if wrong.any() and np.count_nonzero(wrong) * 2 >= np.count_nonzero(np.isfinite(shares)):
        example = int(np.flatnonzero(wrong)[0])
        raise ConfigError(
            f"{field}: {nodes.names[example]} uses {shares[example]:.4g} times its capacity: expected the unit of "
            "`node`"
        )


def check_unit(shares: Floats, nodes: Nodes, *, known: int, field: str, unit: str, hint: str = "") -> None:
    """A query in the wrong unit would make all nodes hot: ConfigError when half of the `known` values are impossible.

    `shares` (nodes,) are of the capacity; NaN where unknown.
    """
    wrong = np.isfinite(shares) & (shares > MOST_PLAUSIBLE_SHARE)
    if wrong.any() and np.count_nonzero(wrong) * 2 >= known:
        example = int(np.flatnonzero(wrong)[0])
        raise ConfigError(
            f"{field}: answers {shares[example]:.4g} times the capacity of {nodes.names[example]}: expected "
            + ("a share between 0 and 1, not percent" if unit == "share" else "cores")
            + hint
        )
