"""Large disturbances: many nodes or services of a zone, a pool or the cluster turned unready within minutes.

What is to move by itself soon, and where it lands, is too uncertain then to move anything more. node-lifecycle stops
its own evictions in such a zone, too. A disturbance ends when its nodes and pods are Ready again, and in any case
SECONDS after the last of them turned unready: what stays so is a state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.reason import Reason, Refusal

SECONDS = 600.0
ZONE = "topology.kubernetes.io/zone"
LEAST_NODES = 3
"""As node-lifecycle's: two nodes of a small zone are no outage."""
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
        return Refusal.of(Reason.DISTURBANCE, f"{self.scope}: {self.detail}", next_at=self.until)


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
    top = np.append(snapshot.top_owner, -1)[pods.owner]
    found = []
    for scope, within in _scopes(snapshot, pools):
        inside = running & np.append(within, False)[pods.node]
        detail = _share_of("node", np.flatnonzero(lost & within), int(np.count_nonzero(within)), share, LEAST_NODES)
        detail = detail or _share_of(
            "service", np.unique(top[turned & inside]), len(np.unique(top[inside])), share, LEAST_SERVICES
        )
        if detail:
            times = [*nodes.unready_since[lost & within].tolist(), *pods.unready_since[turned & inside].tolist()]
            found.append(Disturbance(scope, within, detail, max(times) + SECONDS))
    return tuple(found)


def _share_of(noun: str, turned: NDArray[np.integer], of: int, share: float, least: int) -> str:
    """What has turned unready; empty where it is less than the share."""
    if len(turned) < least or len(turned) < share * of:
        return ""
    return f"{len(turned)} of {counted(of, noun)} turned unready within minutes, {percent(share)} stop evictions"


def _scopes(snapshot: ClusterSnapshot, pools: Sequence[str]) -> Iterator[tuple[str, Bools]]:
    """(name, (nodes,) its nodes)."""
    yield "the cluster", np.ones(len(snapshot.nodes), dtype=np.bool_)
    zones = [labels.get(ZONE, "") for labels in snapshot.nodes.labels]
    for kind, names in (("zone", zones), ("pool", pools)):
        column = np.array(names, dtype=object)
        for name in sorted({each for each in names if each}):
            yield f"{kind} {name}", np.asarray(column == name, dtype=np.bool_)
