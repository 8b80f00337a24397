"""The pool of each node, and the thresholds that make it hot there."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.policy import Pool, Thresholds, resources_with_thresholds


class NodeThresholds(NamedTuple):
    """Shares of capacity; arrays have a last axis of nodes, NaN where a node has none."""

    high: Floats
    target: Floats
    low: Floats


@dataclass(frozen=True)
class NodePools:
    """The pool of each node of a snapshot."""

    pools: tuple[Pool, ...]
    node_names: Sequence[str]
    of_node: NDArray[np.int32]
    """(nodes,) index into `pools`; -1 for a node in none."""
    matching: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Node -> the pools that match it, where these are several. It is in none: its thresholds would be ambiguous. What
    lands there stays under the lowest target of them."""
    left_out: Mapping[int, Refusal] = field(default_factory=dict)
    """Nodes that are in no pool although a selector may match, with the reason."""

    @classmethod
    def of(cls, pools: Sequence[Pool], nodes: Nodes) -> "NodePools":
        """Match the pools' selectors with the nodes' labels."""
        of_node, matching, unreadable = _assigned(pools, nodes)
        ambiguous = {
            node: Refusal.of(Reason.NODE_IN_TWO_POOLS, " and ".join(pools[index].name for index in found))
            for node, found in matching.items()
        }
        return cls(tuple(pools), nodes.names, of_node, matching, ambiguous | unreadable)

    def obstacles(self) -> list[Obstacle]:
        """The nodes that two pools match."""
        return [
            Obstacle(kind="Node", namespace="", name=self.node_names[node], cause=why.message)
            for node, why in self.left_out.items()
            if node in self.matching
        ]

    @cached_property
    def names(self) -> list[str]:
        """(nodes,) name of each node's pool; empty for none."""
        names = [*(pool.name for pool in self.pools), ""]
        return [names[index] for index in self.of_node.tolist()]

    @cached_property
    def by_node(self) -> dict[str, str]:
        """Node name -> pool name; nodes in no pool are left out."""
        return {node: pool for node, pool in zip(self.node_names, self.names, strict=True) if pool}

    def members(self, pool: int) -> NDArray[np.intp]:
        """Indices of the nodes of a pool."""
        return np.flatnonzero(self.of_node == pool)

    def thresholds(self, shares: Floats, pools: Collection[int] | None = None) -> NodeThresholds:
        """The thresholds of each node, in the shape of `shares` (nodes,) or (times, nodes).

        Deviation mode lies around the mean of the pool's shares, at each moment its own. NaN for nodes without a pool,
        of pools without thresholds, and of pools that are not among `pools` (indices; None = all).
        """
        rows = np.atleast_2d(shares)
        out = [np.full(rows.shape, np.nan) for _ in NodeThresholds._fields]
        target = out[1]
        for index, pool in enumerate(self.pools):
            members, between = self.members(index), self._between(index)
            if pool.thresholds is None or (pools is not None and index not in pools):
                continue
            moments = range(len(rows)) if pool.thresholds.relative_to_mean else [slice(None)]
            for at in moments if len(members) + len(between) else ():
                marks = cpu_thresholds(pool.thresholds, rows[at, members])
                for column, value in zip(out, marks, strict=True):
                    column[at, members] = value
                target[at, between] = np.fmin(target[at, between], marks[1])
        return NodeThresholds(*(column.reshape(shares.shape) for column in out))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources besides CPU that a pool has thresholds of, in order."""
        return resources_with_thresholds(self.pools)

    def resource_thresholds(self, name: str, pools: Collection[int] | None = None) -> NodeThresholds:
        """(nodes,) thresholds of a resource besides CPU, as shares; NaN as in `thresholds`."""
        out = [np.full(len(self.node_names), np.nan) for _ in NodeThresholds._fields]
        for index, pool in enumerate(self.pools):
            marks = None if pool.thresholds is None else pool.thresholds.resources.get(name)
            if marks is not None and (pools is None or index in pools):
                for column, percent in zip(out, (marks.high, marks.target, marks.low), strict=True):
                    column[self.members(index)] = percent / 100
                between = self._between(index)
                out[1][between] = np.fmin(out[1][between], marks.target / 100)
        return NodeThresholds(*out)

    def _between(self, pool: int) -> list[int]:
        """The nodes that this pool and another match."""
        return [node for node, found in self.matching.items() if pool in found]


def _assigned(
    pools: Sequence[Pool], nodes: Nodes
) -> tuple[NDArray[np.int32], dict[int, tuple[int, ...]], dict[int, Refusal]]:
    """(nodes,) index of the pool, the nodes that several match, and those that can't be read."""
    out, several, unreadable = np.full(len(nodes), -1, dtype=np.int32), {}, {}
    selectors = [pool.selector.compiled() for pool in pools]
    for node, (labels, why) in enumerate(zip(nodes.labels, nodes.unreadable, strict=True)):
        if why:
            unreadable[node] = Refusal.of(Reason.NODE_UNREADABLE, why)
            continue
        matching = [index for index, selector in enumerate(selectors) if selector_matches(selector, labels)]
        if len(matching) > 1:
            several[node] = tuple(matching)
        elif matching:
            out[node] = matching[0]
    return out, several, unreadable


def cpu_thresholds(thresholds: Thresholds, shares: Floats) -> tuple[float, float, float]:
    """(high, target, low) of a pool as shares of capacity.

    In deviation mode they lie around the mean of `shares` (NaN left out); `floor` lifts high and target together, so
    that the distance between them stays.
    """
    high, target, low = thresholds.high / 100, thresholds.target / 100, thresholds.low / 100
    if not thresholds.relative_to_mean:
        return high, target, low
    known = shares[np.isfinite(shares)]
    if not len(known):
        return np.nan, np.nan, np.nan
    mean = math.fsum(known) / len(known)  # exact: the order of the nodes must not matter
    top = max(mean + high, (thresholds.floor or 0.0) / 100)
    cooled = top - (high - target)
    return top, cooled, min(max(mean - low, 0.0), cooled)


def fixed_high(pool: Pool | None, resource: str = CPU) -> float | None:
    """`high` of a resource as a share of capacity; None without thresholds and in deviation mode."""
    thresholds = pool.thresholds if pool is not None else None
    if resource != CPU:
        marks = None if thresholds is None else thresholds.resources.get(resource)
        return None if marks is None else marks.high / 100
    return None if thresholds is None or thresholds.relative_to_mean else thresholds.high / 100
