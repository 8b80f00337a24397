"""Mapping of series to nodes.

node_exporter doesn't know the name of its Kubernetes node: its series carry `instance`, mostly an address with a port.
So a series is matched by the labels that it has, in the order of `nodeBy: Auto`: a `node` label, the node's name, one
of its addresses, and then the labels that kube-state-metrics (`kube_node_info`) or node_exporter itself
(`node_uname_info`) give for that instance. A series of a machine outside the cluster matches no node and is ignored;
one that matches two nodes makes both of them unknown.
"""

import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.notation.arrays import Floats
from rebalancer.prometheus.promql.queries import CLUSTER_LABEL, NODE_INFO, UNAME

Labels = Mapping[str, str]
NodeBy = Literal["Auto", "Name", "Address", "NodeInfo", "Uname"]
Indices = tuple[int, ...]

_SHOWN = 3


class NodeMap:
    """Series labels -> indices of the nodes that they may mean: none, one, or several (ambiguous).

    `label_sets` returns those of a metric; it is called only when names and addresses were not enough.
    """

    def __init__(self, *, nodes: Nodes, label: str, by: NodeBy, label_sets: Callable[[str], Sequence[Labels]]) -> None:
        self._nodes = nodes
        self.label = label
        self._by = by
        self._label_sets = label_sets
        self._names = {name: index for index, name in enumerate(nodes.names)}
        self._seen: dict[tuple[str, str], Indices] = {}

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self._names)

    def find(self, labels: Labels) -> Indices:
        """The nodes that the series may mean."""
        key = (labels.get(self.label, ""), labels.get("node", "") if self._by == "Auto" else "")
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._find(*key)
        return found

    def named(self, value: str) -> int:
        """The one node whose name or address `value` is; -1 for none or several."""
        index = self._names.get(value)
        if index is not None:
            return index
        found = self._by_name(value) or self._by_address(value)
        return found[0] if len(found) == 1 else -1

    def _find(self, value: str, node: str) -> Indices:
        if node in self._names:
            return (self._names[node],)
        ways: dict[NodeBy, Callable[[str], Indices]] = {
            "Name": self._by_name,
            "Address": self._by_address,
            "NodeInfo": self._by_node_info,
            "Uname": self._by_uname,
        }
        if not value:
            return ()
        if self._by != "Auto":
            return ways[self._by](value)
        ambiguous: Indices = ()
        for way in ways.values():
            found = way(value)
            if len(found) == 1:
                return found
            # an address that two nodes share may still be resolved by the exporter's own metadata
            ambiguous = ambiguous or found
        return ambiguous

    def _by_name(self, value: str) -> Indices:
        for name in (value, host_of(value)):
            if name in self._names:
                return (self._names[name],)
        return ()

    def _by_address(self, value: str) -> Indices:
        return self._addresses.get(host_of(value), ())

    def _by_node_info(self, value: str) -> Indices:
        return self._node_info.get(host_of(value), ())

    def _by_uname(self, value: str) -> Indices:
        return self._uname.get(value, ())

    @cached_property
    def _addresses(self) -> Mapping[str, Indices]:
        pairs = (
            (host_of(address), index) for index, addresses in enumerate(self._nodes.addresses) for address in addresses
        )
        return _grouped(pairs)

    @cached_property
    def _node_info(self) -> Mapping[str, Indices]:
        # without honorLabels Prometheus renames the exporter's own label
        names = ((each, each.get("exported_node") or each.get("node", "")) for each in self._label_sets(NODE_INFO))
        return _grouped(
            (host_of(each["internal_ip"]), self._names[name])
            for each, name in names
            if each.get("internal_ip") and name in self._names
        )

    @cached_property
    def _uname(self) -> Mapping[str, Indices]:
        def index(nodename: str) -> int | None:
            # the kernel keeps upper case, Kubernetes doesn't
            return self._names.get(nodename, self._names.get(nodename.lower()))

        found = ((each, index(each.get("nodename", ""))) for each in self._label_sets(UNAME))
        return _grouped(
            (each.get(self.label) or each.get("instance", ""), node) for each, node in found if node is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A vector's values by node."""

    values: Floats
    """(nodes,) NaN without a series, or with one that isn't a number."""
    has_series: NDArray[np.bool_]
    """(nodes,)"""
    ambiguous: Mapping[int, str]
    """Node index -> labels of the series that match it."""
    unmatched: int
    """Number of series that name no node of this cluster."""


def gather(*, labels: Sequence[Labels], values: Floats, node_map: NodeMap, merge_target_on: str | None) -> Gathered:
    """Map series to nodes.

    Two series of one node are a contradiction, unless they agree. With `merge_target_on` (a label), series with that
    label and the cluster in common are scrapes of one target under two jobs, and the larger counts.
    """
    out = np.full(node_map.count, np.nan)
    first: dict[int, Labels] = {}
    ambiguous: dict[int, str] = {}
    unmatched = 0
    for each, value in zip(labels, values.tolist(), strict=True):
        found = node_map.find(each)
        unmatched += not found
        if len(found) > 1:
            for index in found:
                first.setdefault(index, each)
                ambiguous.setdefault(index, f"{shown(each)} fits {len(found)} nodes")
            continue
        for index in found:
            other = first.setdefault(index, each)
            if other is each:
                out[index] = value
            elif merge_target_on is not None and same_target(other, each, merge_target_on):
                out[index] = np.fmax(out[index], value)
            elif not _agree(float(out[index]), value):
                ambiguous.setdefault(index, f"{shown(other)} and {shown(each)}")
    seen = np.zeros(node_map.count, dtype=np.bool_)
    seen[list(first)] = True
    out[list(ambiguous)] = np.nan
    return Gathered(values=out, has_series=seen, ambiguous=ambiguous, unmatched=unmatched)


def oldest(*, labels: Sequence[Labels], values: Floats, node_map: NodeMap) -> Floats:
    """(nodes,) the oldest time of a node's series: with two, the staler one decides. NaN without one."""
    out = np.full(node_map.count, np.nan)
    for each, value in zip(labels, values.tolist(), strict=True):
        for index in node_map.find(each):
            out[index] = np.fmin(out[index], value)
    return out


def host_of(instance: str) -> str:
    """`10.0.0.1:9100`, `[fd00::1]:9100`, `http://a:9100/metrics` -> the host; addresses in their shortest form."""
    host = instance.rpartition("://")[2].partition("/")[0]
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def shown(labels: Labels) -> str:
    """Labels as PromQL writes them, shortened."""
    pairs = [f'{name}="{value}"' for name, value in labels.items() if name != "__name__"]
    rest = ", …" if len(pairs) > _SHOWN else ""
    return "{" + ", ".join(pairs[:_SHOWN]) + rest + "}"


def same_target(one: Labels, other: Labels, label: str) -> bool:
    """Whether two series are scrapes of one target under two jobs."""
    return all(one.get(name) == other.get(name) for name in (label, CLUSTER_LABEL))


def _grouped(pairs: Iterable[tuple[str, int]]) -> Mapping[str, Indices]:
    groups: dict[str, set[int]] = {}
    for key, index in pairs:
        groups.setdefault(key, set()).add(index)
    return {key: tuple(sorted(group)) for key, group in groups.items()}


def _agree(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
