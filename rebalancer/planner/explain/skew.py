"""Heaps: services of which a node holds more than its fair share, and the score plugin that brings them there.

Fair is what a node gets when each pod of the service picks a node by itself among those that would have it, in
proportion to their allocatable CPU. More than that is a heap when it would come about on none of these nodes by chance
in 99 of 100 cases.

The plugin that decides is the one by whose points (normalised, times weight) the node is furthest ahead of the median
of the nodes that would take the next pod now.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.reason import Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Pod, Service
from rebalancer.placement.engine import Engine
from rebalancer.placement.pending import ENOUGH
from rebalancer.placement.sampling import winners
from rebalancer.placement.scores import normalised

BY_CHANCE = 0.01
LATELY_SECONDS = 3600.0
NEVER_SKEWED = ("DaemonSet", "Node")
"""Owners that choose the node themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A score plugin's points for a node against the median of the feasible nodes."""

    plugin: str
    here: float
    median: float

    @property
    def by(self) -> float:
        return self.here - self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFact:
    """An image of a pod, and where it is already."""

    name: str
    size_bytes: float | None
    """None where no node reports it."""
    nodes_with: int
    """Nodes of the cluster that have it."""
    missing: int
    """Nodes that would have the pod but don't have the image."""
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSkew:
    """What brings a service's pods to a node."""

    service: Service
    owner: int
    node: int
    here: int
    """Its pods on the node, terminating and finished ones left out."""
    lately: int
    """Those of them that were created within the last hour."""
    replicas: int
    """Its pods on all nodes."""
    fair: float
    """Its fair share of them."""
    eligible: int
    """Nodes that let them in, whatever room they have now."""
    chance: float
    """That any of them gets so many by chance."""
    feasible: int
    """Nodes that would take the next one now."""
    takes_more: bool
    """Whether this node is one of them."""
    refused_by: tuple[str, str] | None
    """The filter that keeps the next one away, with its words."""
    ahead: tuple[Ahead, ...]
    """Each score plugin; furthest ahead first. Empty when the node takes no more, or it isn't known."""
    total_ahead: float
    """All points against the median."""
    next_here: float | None
    """Chance that the next one lands here; None when that isn't known."""
    not_known: Refusal | None
    """Why nobody knows what decides."""
    images: tuple[ImageFact, ...]
    pod: Pod
    """The youngest of them here, which all this is about."""

    @property
    def heaped(self) -> bool:
        return self.here > math.ceil(self.fair) and self.chance < BY_CHANCE

    @property
    def decisive(self) -> Ahead | None:
        """The plugin that decides, where one speaks for the node."""
        return self.ahead[0] if self.ahead and self.ahead[0].by > 0 else None


def placement_skew_of(
    snapshot: ClusterSnapshot, engine: Engine, owner: int, node: int, now: float
) -> PlacementSkew | None:
    """What brings the pods of a top owner to a node; None where no scheduler chooses or none is there.

    `engine` is the scheduler over the snapshot as it is: it is asked for one pod more.
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
    kind = engine.board.kind_of(pod.index)
    verdict = engine.verdict(kind)
    eligible = verdict.feasible.copy()
    for index, said in enumerate(verdict.filtered):
        eligible[index] |= said is not None and said[0] == "NodeResourcesFit"
    eligible[node] = True
    cpu = snapshot.nodes.cpu_allocatable_millicores
    part = float(cpu[node] / cpu[eligible].sum()) if cpu[node] > 0 else 0.0
    count = int(np.count_nonzero(eligible))
    takes_more, not_known = bool(verdict.feasible[node]), engine.knows(kind)
    ahead = [
        Ahead(plugin=plugin, here=float(points[node]), median=float(np.median(points[verdict.feasible])))
        for plugin, points in verdict.weighted.items()
        if takes_more and not_known is None
    ]
    feasible = int(np.count_nonzero(verdict.feasible))
    likely, chances = winners(verdict.total, engine.sample_size(kind, feasible), enough=ENOUGH)
    return PlacementSkew(
        service=service,
        owner=owner,
        node=node,
        here=len(here),
        lately=int(np.count_nonzero(now - pods.created[here] < LATELY_SECONDS)),
        replicas=len(members),
        fair=len(members) * part,
        eligible=count,
        chance=min(1.0, count * tail(len(members), len(here), part)),
        feasible=feasible,
        takes_more=takes_more,
        refused_by=verdict.filtered[node],
        ahead=tuple(sorted(ahead, key=lambda each: (-each.by, each.plugin))),
        total_ahead=float(verdict.total[node] - np.median(verdict.total[verdict.feasible])) if ahead else 0.0,
        next_here=None if not_known is not None else float(chances[likely == node].sum()),
        not_known=not_known,
        images=images_of(snapshot, pod, node, eligible),
        pod=pod,
    )


def images_of(snapshot: ClusterSnapshot, pod: Pod, node: int, eligible: NDArray[np.bool_]) -> tuple[ImageFact, ...]:
    """Where the pod's images are, the largest first; `eligible` (nodes,) would have the pod."""
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


def tail(draws: int, at_least: int, chance: float) -> float:
    """Probability that of so many independent draws at least so many hit."""
    if at_least <= 0 or chance >= 1:
        return 1.0
    if chance <= 0 or at_least > draws:
        return 0.0
    hit, miss = math.log(chance), math.log1p(-chance)
    whole = math.lgamma(draws + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(whole - math.lgamma(k + 1) - math.lgamma(draws - k + 1) + k * hit + (draws - k) * miss)
            for k in range(at_least, draws + 1)
        ),
    )
