"""Mapping of pod series to a snapshot's pods: the CPU of each, and the CPU still measured for departed pods."""

from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats
from rebalancer.prometheus.promql.decode import PodVector
from rebalancer.prometheus.promql.series import Ints
from rebalancer.prometheus.readings.nodes import NodeMap


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
    pod, label, container = vector.table.columns(vector.series)
    index = vector.table.pods_of(snapshot)[pod]
    labels = vector.table.node_labels()
    node = np.array([-1, *map(node_map.named, labels[1:])], dtype=np.int64)[label]
    named = label > 0
    # -1 (no such pod) picks the appended last element
    on, active = np.append(snapshot.pods.node, -1)[index], np.append(snapshot.active, False)[index]
    here = (index >= 0) & (~named | ((node >= 0) & (on == node) & active))
    left = named & (node >= 0) & ~here
    values = np.where(np.isfinite(vector.values) & (vector.values >= 0), vector.values, np.nan) * scale
    found, totals = _merged(index[here], container[here], values[here])
    pods = np.full(len(snapshot.pods), np.nan)
    pods[found] = totals
    # a pod that left has a total on each node where it was
    gone, totals = _merged(node[left] + len(snapshot.nodes) * pod[left], container[left], values[left])
    departed: Floats = np.bincount(
        gone % max(len(snapshot.nodes), 1), weights=np.nan_to_num(totals), minlength=len(snapshot.nodes)
    ).astype(np.float64)
    return PodUsage(pods=pods, departed=departed if named.any() else None, matched=len(found))


def _merged(keys: Ints, containers: Ints, values: Floats) -> tuple[Ints, Floats]:
    """The keys, ascending, and the value of each: several series of one container are views of the same, and the larger
    counts; containers are summed; container 0 is the whole. NaN where it, or a part of it, isn't a number."""
    count = int(containers.max(initial=0)) + 1
    codes, at = np.unique(keys * count + containers, return_inverse=True)
    largest = np.full(len(codes), np.nan)
    np.fmax.at(largest, at.reshape(-1), values)
    is_part = codes % count > 0
    found, of = np.unique(codes // count, return_inverse=True)
    of = of.reshape(-1)
    whole = np.full(len(found), np.nan)
    whole[of[~is_part]] = largest[~is_part]
    if not is_part.any():
        return found, whole
    parts = np.bincount(of[is_part], weights=largest[is_part], minlength=len(found))
    parts[np.bincount(of[is_part], minlength=len(found)) == 0] = np.nan
    return found, np.fmax(whole, parts)
