"""A small cluster with days of history in a real block store, for tests of the backtest on them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, Grid, History
from rebalancer.store.blocks import BlockStore
from tests.builders import NOW, APod, a_pod

TODAY = int(NOW // DAY_SECONDS)
NODES = tuple(f"n{number}" for number in range(6))
PODS_PER_NODE = 2
OWN = 100.0
"""Millicores that each machine uses by itself."""

Level = Callable[[int, int], float]
"""(day, node) -> millicores of each of the node's pods."""


class Fixed:
    def now(self) -> float:
        return NOW


def pods() -> list[APod]:
    """Two of each node's own service."""
    return [
        a_pod(f"web{node[1:]}-{number}", node, owner=f"web{node[1:]}", age=60 * DAY_SECONDS)
        for node in NODES
        for number in range(PODS_PER_NODE)
    ]


def day_of(day: int, level: Level, *, of: list[APod] | None = None, seed: int = 1) -> DayBlock:
    """A closed day, all of it at one level but for a little noise."""
    random = np.random.default_rng((seed, day))
    there = pods() if of is None else of
    values: Grid = np.empty((len(there), SLOTS), dtype=np.float32)
    used = {node: np.full(SLOTS, OWN) for node in NODES}
    for row, pod in enumerate(there):
        values[row] = level(day, NODES.index(pod.node)) * random.uniform(0.98, 1.02, SLOTS)
        used[pod.node] += values[row]
    return DayBlock(
        day=day,
        pods=tuple(f"{pod.namespace}/{pod.name}" for pod in there),
        pod_millicores=values,
        nodes=NODES,
        node_millicores=np.array([used[node] for node in NODES], dtype=np.float32),
    )


def kept(folder: Path, blocks: Mapping[int, DayBlock] | list[DayBlock], *, days: int) -> History:
    """Through the store and the keeper, as the program reads it; today has begun."""
    store = BlockStore(folder, cluster="test", source="observed")
    for block in blocks.values() if isinstance(blocks, Mapping) else blocks:
        store.save(block)
    store.save(replace(day_of(TODAY, lambda day, node: 500.0), complete=False, filled=96))
    return HistoryKeeper(source=None, blocks=store, clock=Fixed(), days=days).kept()
