"""Disturbances: many nodes or services of a zone, a pool or the cluster turned unready within minutes.

Which pods will move, and where they will land, is too uncertain then to evict more. The node lifecycle controller
stops its own evictions in such a zone, too. A disturbance ends when its nodes and pods are Ready again, and in any case
SECONDS after the last of them turned unready. The services of one namespace alone are none: its owner could stop
evictions for all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools, Ints
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.reason import Reason, Refusal

SECONDS = 600.0
ZONE = "topology.kubernetes.io/zone"
LEAST_NODES = 3
"""As the node lifecycle controller's: two nodes of a small zone are no outage."""
LEAST_SERVICES = 5
STARTED_SECONDS = 60.0
"""A pod that turned unready sooner after its start was never Ready: it is starting."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One of a scope: `the cluster`, `zone NAME` or `pool NAME`."""

    scope: str
    nodes: Bools
    """(nodes,) that it concerns."""
    detail: str
    until: float
    """Seconds since the epoch: the latest end."""

    @property
    def refusal(self) -> Refusal:
        """Why nothing is evicted there."""
        return Refusal.of(Reason.DISTURBANCE, self.detail, next_at=self.until)


def disturbances(
    snapshot: ClusterSnapshot, pools: Sequence[str], *, share: float, now: float
) -> tuple[Disturbance, ...]:
    """The largest scopes first. `pools` (nodes,) names, empty for none; `share` of nodes or services, 0..1."""
    nodes, pods = snapshot.nodes, snapshot.pods
    lost = ~nodes.ready & (nodes.unready_since > now - SECONDS)
    running = snapshot.active & ~pods.terminating & (pods.owner >= 0)
    turned = running & ~pods.ready & (pods.unready_since > now - SECONDS)
    turned &= pods.unready_since > pods.started + STARTED_SECONDS
    if np.count_nonzero(lost) < LEAST_NODES and np.count_nonzero(turned) < LEAST_SERVICES:
        return ()
    found = []
    for scope, within in _scopes(snapshot, pools):
        inside = running & np.append(within, False)[pods.node]
        nodes_lost, services_turned = np.flatnonzero(lost & within), _services(snapshot, turned & inside)
        services = _services(snapshot, inside)
        detail = ""
        if _is_share(len(nodes_lost), int(np.count_nonzero(within)), share, LEAST_NODES):
            detail = f"{len(nodes_lost)} of {counted(int(np.count_nonzero(within)), 'node')}"
        elif _is_share(*_without_one_namespace(services_turned, services), share, LEAST_SERVICES):
            detail = f"{len(services_turned)} of {counted(len(services), 'service')}"
        if detail:
            detail += f" in {scope}, {percent(share)} stop evictions"
            times = [*nodes.unready_since[lost & within].tolist(), *pods.unready_since[turned & inside].tolist()]
            found.append(Disturbance(scope, within, detail, max(times) + SECONDS))
    return tuple(found)


def _is_share(turned: int, of: int, share: float, least: int) -> bool:
    return turned >= least and turned >= share * of


def _services(snapshot: ClusterSnapshot, rows: Bools) -> Ints:
    """(services,) namespace of each service of these pods (pods,), which all have owners."""
    _, first = np.unique(snapshot.top_owner[snapshot.pods.owner[rows]], return_index=True)
    return snapshot.pods.namespace[rows][first]


def _without_one_namespace(turned: Ints, services: Ints) -> tuple[int, int]:
    """(turned, all) without the namespace that has most of those that turned. Both are given by their namespaces."""
    if not len(turned):
        return 0, len(services)
    most = np.bincount(turned).argmax()
    return int(np.count_nonzero(turned != most)), int(np.count_nonzero(services != most))


def _scopes(snapshot: ClusterSnapshot, pools: Sequence[str]) -> Iterator[tuple[str, Bools]]:
    """(name, (nodes,) its nodes)."""
    yield "the cluster", np.ones(len(snapshot.nodes), dtype=np.bool_)
    zones = [labels.get(ZONE, "") for labels in snapshot.nodes.labels]
    for kind, names in (("zone", zones), ("pool", pools)):
        column = np.array(names, dtype=object)
        for name in sorted({each for each in names if each}):
            yield f"{kind} {name}", np.asarray(column == name, dtype=np.bool_)
