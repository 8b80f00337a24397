"""Placement skews: services of which a node holds more than its fair share, and the score plugin that decides it.

The fair share is the expected number of pods when each pod of the service picks one of its eligible nodes at random, in
proportion to their allocatable CPU. More than that is a skew when the probability that any of these nodes gets so many
is under 1 %.

The decisive plugin is the one with the largest lead: points (normalised, times weight) above the median of the nodes
that are feasible for the next pod now.
"""

import math
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Refusal
from rebalancer.placement.draws.sampling import winners
from rebalancer.placement.landing.pending import ENOUGH
from rebalancer.placement.plugins.images import normalised
from rebalancer.placement.scheduler.engine import Engine

MAX_P_VALUE = 0.01
LAST_HOUR_SECONDS = 3600.0
NEVER_SKEWED = ("DaemonSet", "Node")
"""Owners whose pods are not placed by the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLead:
    """A score plugin's points for a node against the median of the feasible nodes."""

    plugin: str
    here: float
    median: float

    @property
    def lead(self) -> float:
        return self.here - self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFact:
    """An image of a pod and the nodes that have it."""

    name: str
    size_bytes: float | None
    """None where no node reports it."""
    nodes_with: int
    """Nodes of the cluster that have it."""
    missing: int
    """Eligible nodes without the image."""
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPod:
    """What kube-scheduler would do with the service's next pod."""

    feasible: int
    """Nodes that are feasible for it now."""
    takes_more: bool
    """Whether this node is one of them."""
    refused_by: tuple[str, str] | None
    """The filter that rejects this node, with its message."""
    leads: tuple[ScoreLead, ...]
    """Each score plugin, the largest lead first; empty where this node isn't feasible or the scheduler isn't known."""
    total_lead: float
    """Lead of the total score."""
    probability: float | None
    """Probability that it lands here; None where unknown."""
    unknown_reason: Refusal | None
    """Why the scores are unknown."""

    @property
    def decisive(self) -> ScoreLead | None:
        """The plugin with the largest lead; None where none favours the node."""
        return self.leads[0] if self.leads and self.leads[0].lead > 0 else None

    @property
    def decided_by(self) -> str:
        """Its name; empty without one."""
        return "" if self.decisive is None else self.decisive.plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSkew:
    """The placement of a service's pods on a node."""

    service: Service
    owner: int
    node: int
    here: int
    """Its pods on the node, without terminating and finished ones."""
    last_hour: int
    """Those created within the last hour."""
    replicas: int
    """Its pods on all nodes."""
    fair: float
    """Its fair share of them."""
    eligible: int
    """Nodes that pass every filter but the fit of requests."""
    p_value: float
    """Probability that any eligible node gets so many by chance."""
    next_pod: NextPod
    images: tuple[ImageFact, ...]
    pod: Pod
    """The youngest of them here, which is explained."""

    @property
    def skewed(self) -> bool:
        return self.here > math.ceil(self.fair) and self.p_value < MAX_P_VALUE


def placement_skew_of(
    snapshot: ClusterSnapshot, engine: Engine, owner: int, node: int, now: float
) -> PlacementSkew | None:
    """The placement of a top owner's pods on a node; None where it has none or the scheduler doesn't place them.

    `engine` is the scheduler over the snapshot; it scores one more pod.
    """
    service = snapshot.service_of(owner)
    if service is None or snapshot.owners[int(snapshot.top_owner[owner])].kind in NEVER_SKEWED:
        return None
    pods = snapshot.pods
    members = snapshot.pods_of(owner)
    members = members[snapshot.active[members] & ~pods.terminating[members]]
    here = members[pods.node[members] == node]
    if not len(here):
        return None
    pod = snapshot.pod(int(here[np.argmax(pods.created[here])]))
    kind = engine.board.kinds.of(pod.index)
    verdict = engine.verdict(kind)
    eligible = verdict.feasible.copy()
    for index, failed in enumerate(verdict.filtered):
        eligible[index] |= failed is not None and failed[0] == "NodeResourcesFit"
    eligible[node] = True
    cpu = snapshot.nodes.cpu_allocatable_millicores
    part = float(cpu[node] / cpu[eligible].sum()) if cpu[node] > 0 else 0.0
    count = int(np.count_nonzero(eligible))
    takes_more, unknown_reason = bool(verdict.feasible[node]), engine.knows(kind)
    ahead = [
        ScoreLead(plugin=plugin, here=float(points[node]), median=float(np.median(points[verdict.feasible])))
        for plugin, points in verdict.weighted.items()
        if takes_more and unknown_reason is None
    ]
    feasible = int(np.count_nonzero(verdict.feasible))
    likely, probabilities = winners(verdict.total, engine.sample_size(kind, feasible), enough=ENOUGH)
    return PlacementSkew(
        service=service,
        owner=owner,
        node=node,
        here=len(here),
        last_hour=int(np.count_nonzero(now - pods.created[here] < LAST_HOUR_SECONDS)),
        replicas=len(members),
        fair=len(members) * part,
        eligible=count,
        p_value=min(1.0, count * tail(len(members), len(here), part)),
        next_pod=NextPod(
            feasible=feasible,
            takes_more=takes_more,
            refused_by=verdict.filtered[node],
            leads=tuple(sorted(ahead, key=lambda each: (-each.lead, each.plugin))),
            total_lead=float(verdict.total[node] - np.median(verdict.total[verdict.feasible])) if ahead else 0.0,
            probability=None if unknown_reason is not None else float(probabilities[likely == node].sum()),
            unknown_reason=unknown_reason,
        ),
        images=images_of(snapshot, pod, node, eligible),
        pod=pod,
    )


def images_of(snapshot: ClusterSnapshot, pod: Pod, node: int, eligible: Bools) -> tuple[ImageFact, ...]:
    """The nodes with the pod's images, the largest image first; `eligible` (nodes,) may take the pod."""
    images = snapshot.nodes.images
    facts = []
    for name in dict.fromkeys(map(normalised, (*pod.template.images, *pod.template.volume_images))):
        there = images.nodes_with(name)
        facts.append(
            ImageFact(
                name=name,
                size_bytes=images.size_of(name),
                nodes_with=len(there),
                missing=int(np.count_nonzero(eligible) - np.count_nonzero(eligible[there])),
                here=bool((there == node).any()),
            )
        )
    return tuple(sorted(facts, key=lambda each: (-(each.size_bytes or 0.0), each.name)))


def tail(draws: int, at_least: int, probability: float) -> float:
    """Probability that of so many independent draws at least so many hit."""
    if at_least <= 0 or probability >= 1:
        return 1.0
    if probability <= 0 or at_least > draws:
        return 0.0
    hit, miss = math.log(probability), math.log1p(-probability)
    whole = math.lgamma(draws + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(whole - math.lgamma(k + 1) - math.lgamma(draws - k + 1) + k * hit + (draws - k) * miss)
            for k in range(at_least, draws + 1)
        ),
    )
