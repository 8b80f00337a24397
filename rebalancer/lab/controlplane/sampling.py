"""The nodes that kube-scheduler samples for one pod: all of them, or from 100 nodes on a part that advances.

Source: pkg/scheduler/schedule_one.go (`findNodesThatPassFilters`) and pkg/scheduler/backend/cache/node_tree.go.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np

from rebalancer.model.notation.arrays import Bools, Rows
from rebalancer.placement.draws.sampling import nodes_to_find

_ZONE_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def visiting_order(labels: Sequence[Mapping[str, str]]) -> Rows:
    """Node indices in the scheduler's visiting order: one of each zone in turn."""
    zones: dict[tuple[str | None, ...], list[int]] = {}
    for index, each in enumerate(labels):
        zones.setdefault(tuple(each.get(label) for label in _ZONE_LABELS), []).append(index)
    turns = zip_longest(*zones.values())
    return np.array([index for turn in turns for index in turn if index is not None], dtype=np.int64)


class Sampler:
    """Iterates over the nodes; each pod starts where the previous one stopped."""

    def __init__(self, most: int | None = None) -> None:
        """`most` feasible nodes are sampled; kube-scheduler's number when absent."""
        self._most = most
        self._next = 0

    def sample(self, feasible: Bools, order: Rows) -> Rows:
        """The feasible nodes that are scored; `order` is the visiting order of all nodes."""
        count = len(order)
        most = nodes_to_find(count, 0) if self._most is None else self._most
        visited = np.roll(order, -(self._next % max(count, 1)))
        found = np.flatnonzero(feasible[visited])
        seen = int(found[most - 1]) + 1 if len(found) >= most > 0 else count
        self._next = (self._next + seen) % max(count, 1)
        return visited[found[:most]]
