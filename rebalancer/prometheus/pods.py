"""Mapping of pod series to a snapshot's pods: the CPU of each, and the CPU still measured for departed pods."""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from rebalancer.model.snapshot import ClusterSnapshot, Floats
from rebalancer.prometheus.decode import PodVector
from rebalancer.prometheus.nodes import NodeMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """CPU in millicores."""

    pods: Floats
    """(pods,) NaN without a series, or with one that isn't a number."""
    departed: Floats | None
    """(nodes,) CPU still measured for pods that run elsewhere now, or nowhere; None when series name no node."""
    matched: int
    """Number of pods of this snapshot with a series."""


def pod_usage(*, vector: PodVector, snapshot: ClusterSnapshot, node_map: NodeMap, scale: float = 1000.0) -> PodUsage:
    """Match series to pods by namespace, name and, where the series has it, node. `scale` converts their unit.

    A rate still shows a pod for a whole window after it left. A StatefulSet's pod keeps its name, so its old series is
    distinguished by the node alone. Finished pods count as departed too: their CPU won't come back. A series that names
    a node of another cluster is ignored.
    """
    index_of = _index(snapshot)
    pod_node = snapshot.pods.node.tolist()
    active = snapshot.active.tolist()
    here = _Views[int]()
    left = _Views[tuple[int, str, str]]()
    millicores = np.where(np.isfinite(vector.values) & (vector.values >= 0), vector.values, np.nan) * scale
    nodes: dict[str, int] = {"": -1}
    names_nodes = False
    empty: Mapping[str, int] = {}
    for namespace, name, node_label, container, value in zip(
        vector.namespaces, vector.pods, vector.nodes, vector.containers, millicores.tolist(), strict=True
    ):
        index = index_of.get(namespace, empty).get(name, -1)
        node = nodes.get(node_label)
        if node is None:
            node = nodes[node_label] = node_map.named(node_label)
        if not node_label:
            if index >= 0:
                here.add(index, container, value)
            continue
        names_nodes = True
        if node < 0:
            continue
        if index >= 0 and pod_node[index] == node and active[index]:
            here.add(index, container, value)
        else:
            left.add((node, namespace, name), container, value)
    pods = np.full(len(snapshot.pods), np.nan)
    for index, value in here.totals():
        pods[index] = value
    departed = np.zeros(len(snapshot.nodes))
    for (node, _, _), value in left.totals():
        if not math.isnan(value):
            departed[node] += value
    return PodUsage(pods=pods, departed=departed if names_nodes else None, matched=len(here))


K = TypeVar("K", bound=Hashable)


class _Views(Generic[K]):
    """Series merged by key: several series of one container are views of the same, and the larger counts; containers
    are summed."""

    def __init__(self) -> None:
        self._whole: dict[K, float] = {}
        self._parts: dict[K, dict[str, float]] = {}

    def __len__(self) -> int:
        return len(self._whole.keys() | self._parts.keys()) if self._parts else len(self._whole)

    def add(self, key: K, container: str, value: float) -> None:
        """An empty container label means the whole pod."""
        if container:
            parts = self._parts.setdefault(key, {})
            parts[container] = _larger(parts.get(container, math.nan), value)
        else:
            self._whole[key] = _larger(self._whole.get(key, math.nan), value)

    def totals(self) -> Iterator[tuple[K, float]]:
        """One value for each key; NaN where it, or a part of it, isn't a number."""
        for key, parts in self._parts.items():
            yield key, _larger(self._whole.get(key, math.nan), sum(parts.values()))
        yield from ((key, value) for key, value in self._whole.items() if key not in self._parts)


def _index(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[str, int]]:
    """Namespace -> pod name -> index."""
    tables: list[dict[str, int]] = [{} for _ in snapshot.namespaces]
    for index, (namespace, name) in enumerate(zip(snapshot.pods.namespace.tolist(), snapshot.pods.names, strict=True)):
        tables[namespace][name] = index
    return dict(zip(snapshot.namespaces, tables, strict=True))


def _larger(one: float, other: float) -> float:
    """Of two series of one pod, which are two views of it and not two pods, the larger. NaN gives way."""
    if math.isnan(other):
        return one
    return other if math.isnan(one) else max(one, other)
