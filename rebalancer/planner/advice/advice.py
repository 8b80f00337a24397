"""How kube-scheduler should be configured for what is seen in the cluster, each piece of advice with its numbers.

Only what the snapshot shows is told. Profiles are what the scheduler runs with now, changed by the advice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rebalancer.model.scheduler import (
    SchedulerConfig,
)
from rebalancer.model.snapshot import PENDING, ClusterSnapshot
from rebalancer.placement.engine import Engine
from rebalancer.placement.filters import LEAVING_TAINTS
from rebalancer.planner.advice.profiles import (
    CROWD_PROFILE,
    PACKING_PROFILE,
    AdvisedProfile,
    Packing,
    advised_profiles,
    direction,
    image_weight,
    main_profile,
)
from rebalancer.planner.explain.skew import BY_CHANCE, NEVER_SKEWED, PlacementSkew, placement_skew_of, tail
from rebalancer.policy.schema.strategies import Strategy

SPREAD_THEM = "give its pods topologySpreadConstraints"
BY_PLUGIN = {
    "NodeAffinity": "its preferred node affinity asks for it: weigh that down, or spread its pods",
    "InterPodAffinity": "preferred pod affinity asks for it: weigh that down, or spread its pods",
    "TaintToleration": "other nodes carry PreferNoSchedule taints: take them off where they are no longer meant",
}

CROWD_AT_LEAST = 10
"""Young pods of one CronJob or Job on a pool of few nodes; on a larger one, one for every two nodes."""
YOUNG_SECONDS = 1800.0
PENDING_AT_LEAST = 20
"""Pods of one owner that wait at the same time."""
MAX_PLACEMENT_SKEWS = 20
SERVICES_LOOKED_AT = 100
"""The scheduler is asked about so many suspects, those with the most pods in excess first."""


class Topic(StrEnum):
    """What a piece of advice is about."""

    STRATEGY = "ScoringStrategy"
    IMAGE_LOCALITY = "ImageLocality"
    HEAP = "Heap"
    CROWD = "Crowd"
    PRE_PULL = "PrePull"
    PENDING = "PendingCap"
    AUTOSCALER = "Autoscaler"
    NOT_MODELLED = "NotModelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing that is seen, and what to do about it."""

    topic: Topic
    subject: str
    """A service, an image, a pool, or the scheduler."""
    seen: str
    """With the numbers."""
    do: str
    figures: Mapping[str, float | str | None]
    """The numbers, for programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAdvice:
    """See `advise`."""

    advice: tuple[Advice, ...]
    profiles: tuple[AdvisedProfile, ...]
    percentage_of_nodes_to_score: int
    placement_skews: tuple[PlacementSkew, ...]


def advise(
    snapshot: ClusterSnapshot,
    engine: Engine,
    config: SchedulerConfig,
    *,
    strategies: Sequence[Strategy],
    pools: Sequence[str],
    now: float,
) -> SchedulerAdvice:
    """`engine` is the scheduler over the snapshot as it is; `strategies` are the policy's; `pools` (nodes,)
    names of the nodes' pools, empty for none."""
    placement_skews = find_placement_skews(snapshot, engine, now)
    strategy, packing = _strategy(strategies, config)
    by_image = [
        heap for heap in placement_skews if heap.decisive is not None and heap.decisive.plugin == "ImageLocality"
    ]
    images = [_image_locality(heap, config) for heap in by_image]
    others = [_heap(heap, snapshot) for heap in placement_skews if heap not in by_image]
    crowds = _crowds(snapshot, pools, now)
    found = [
        *([] if strategy is None else [strategy]),
        *images,
        *others,
        *crowds,
        *_pre_pulls(by_image),
        *_waiting(snapshot),
        *_autoscalers(snapshot, pools),
        *_not_modelled(config),
    ]
    return SchedulerAdvice(
        advice=tuple(found),
        profiles=advised_profiles(
            config,
            packing,
            why_packing=strategy.seen if strategy is not None else "",
            placement_skews=[
                (heap, f"{each.subject}: {each.seen}") for heap, each in zip(by_image, images, strict=True)
            ],
            crowds=[f"{each.subject}: {each.seen}" for each in crowds],
        ),
        percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
        placement_skews=tuple(placement_skews),
    )


def find_placement_skews(snapshot: ClusterSnapshot, engine: Engine, now: float) -> list[PlacementSkew]:
    """Services of which some node holds more than its fair share, the largest excess first."""
    pods, cpu = snapshot.pods, snapshot.nodes.cpu_allocatable_millicores
    chosen = np.flatnonzero(snapshot.active & ~pods.terminating & (pods.owner >= 0))
    whole, size = float(cpu.sum()), len(snapshot.nodes)
    if not len(chosen) or whole <= 0:
        return []
    tops = snapshot.top_owner[pods.owner[chosen]].astype(np.int64)
    pairs, counts = np.unique(tops * size + pods.node[chosen], return_counts=True)
    totals = np.bincount(tops, minlength=len(snapshot.owners))
    suspects = []
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        top, node = divmod(pair, size)
        total, part = int(totals[top]), float(cpu[node]) / whole
        # of all nodes there is the least to be expected: whoever is no heap by that is none among fewer
        more_than_fair = count > math.ceil(total * part) and snapshot.owners[top].kind not in NEVER_SKEWED
        if more_than_fair and tail(total, count, part) < BY_CHANCE:
            suspects.append((count - total * part, top, node))
    suspects.sort(key=lambda each: (-each[0], each[1], each[2]))
    found = (placement_skew_of(snapshot, engine, top, node, now) for _, top, node in suspects[:SERVICES_LOOKED_AT])
    return [each for each in found if each is not None and each.heaped][:MAX_PLACEMENT_SKEWS]


# ---- what is seen


def _strategy(strategies: Sequence[Strategy], config: SchedulerConfig) -> tuple[Advice | None, Packing]:
    packs, spreads = (
        sorted({each.name for each in strategies if balance == each.BALANCE}) for balance in ("Pack", "Spread")
    )
    if not packs and not spreads:
        return None, Packing()
    packing = Packing(default="LeastAllocated" if spreads else "MostAllocated", apart=bool(packs and spreads))
    profile = main_profile(config)
    if direction(profile) == packing.default:
        do = f"keep {profile.fit_strategy}"
    else:
        do = f"set {packing.default}: with {profile.fit_strategy} the scheduler works against the policy's evictions"
    if packing.apart:
        do += f"; pods of the pools that are packed go to the profile {PACKING_PROFILE} (schedulerName)"
    seen = f"the policy runs {' and '.join([*packs, *spreads])}; the scheduler scores by {profile.fit_strategy}"
    figures = {"now": profile.fit_strategy, "wanted": packing.default}
    return Advice(topic=Topic.STRATEGY, subject=profile.name, seen=seen, do=do, figures=figures), packing


def _image_locality(heap: PlacementSkew, config: SchedulerConfig) -> Advice:
    decisive = heap.decisive
    assert decisive is not None
    weight = config.profiles[heap.pod.template.scheduler_name].weights["ImageLocality"]
    wanted = image_weight(heap, weight)
    return Advice(
        topic=Topic.IMAGE_LOCALITY,
        subject=str(heap.service),
        seen=f"{_counts(heap)}; ImageLocality gives this node {decisive.here:g} points, the median of {heap.feasible} "
        f"nodes {decisive.median:g}; all plugins together put it {heap.total_ahead:+g} points ahead",
        do="disable ImageLocality" if not wanted else f"weigh ImageLocality {wanted} instead of {weight}",
        figures={**_figures(heap), "weight": float(weight), "wantedWeight": float(wanted)},
    )


def _heap(heap: PlacementSkew, snapshot: ClusterSnapshot) -> Advice:
    decisive = heap.decisive
    if decisive is not None:
        seen = f"{_counts(heap)}; {decisive.plugin} gives this node {decisive.here:g} points, the median of "
        seen += f"{heap.feasible} nodes {decisive.median:g}"
    elif heap.refused_by is not None:
        seen = f"{_counts(heap)}; no more come for now: {heap.refused_by[0]}: {heap.refused_by[1]}"
    else:
        seen = f"{_counts(heap)}; no score plugin speaks for the node any more"
    spreads = "look at its own topologySpreadConstraints" if heap.pod.template.topology_spread else SPREAD_THEM
    return Advice(
        topic=Topic.HEAP,
        subject=str(heap.service),
        seen=f"{seen} (node {snapshot.nodes.names[heap.node]})",
        do=BY_PLUGIN.get(decisive.plugin, spreads) if decisive is not None else spreads,
        figures=_figures(heap),
    )


def _counts(heap: PlacementSkew) -> str:
    return (
        f"{heap.here} of {heap.replicas} pods are on {heap.pod.node_name}, its fair share of {heap.eligible} nodes "
        f"is {heap.fair:.1f}"
    )


def _figures(heap: PlacementSkew) -> dict[str, float | str | None]:
    decisive = heap.decisive
    return {
        "node": heap.pod.node_name,
        "podsHere": float(heap.here),
        "pods": float(heap.replicas),
        "fairShare": round(heap.fair, 3),
        "nodes": float(heap.eligible),
        "plugin": decisive.plugin if decisive is not None else None,
        "pointsHere": decisive.here if decisive is not None else None,
        "pointsMedian": decisive.median if decisive is not None else None,
        "totalAhead": heap.total_ahead if heap.takes_more else None,
    }


def _crowds(snapshot: ClusterSnapshot, pools: Sequence[str], now: float) -> list[Advice]:
    """CronJobs and Jobs with many young pods in one pool."""
    pods = snapshot.pods
    sizes = {pool: pools.count(pool) for pool in set(pools)}
    counts: dict[tuple[str, int], list[int]] = {}
    young = np.flatnonzero((pods.node >= 0) & (pods.owner >= 0) & (now - pods.created < YOUNG_SECONDS))
    for index in young.tolist():
        top = int(snapshot.top_owner[pods.owner[index]])
        if snapshot.owners[top].kind in ("CronJob", "Job"):
            counts.setdefault((pools[pods.node[index]], top), []).append(index)
    out = []
    for (pool, top), members in sorted(counts.items(), key=lambda each: (-len(each[1]), each[0])):
        if len(members) < max(CROWD_AT_LEAST, sizes[pool] / 2):
            continue
        service, on = snapshot.service_of(top), len(set(pods.node[members].tolist()))
        kind, oldest = snapshot.owners[top].kind, float(now - pods.created[members].min())
        out.append(
            Advice(
                topic=Topic.CROWD,
                subject=str(service),
                seen=f"{kind} with {len(members)} pods younger than {YOUNG_SECONDS / 60:.0f} minutes (the oldest "
                f"{oldest / 60:.0f}) on {on} of {sizes[pool]} nodes of pool {pool or 'none'}; default spreading "
                "doesn't see pods of Jobs",
                do=f"schedulerName {CROWD_PROFILE} and topologySpreadConstraints over kubernetes.io/hostname "
                "(ScheduleAnyway, with a labelSelector) in its pod template",
                figures={
                    "pods": float(len(members)),
                    "nodesUsed": float(on),
                    "nodes": float(sizes[pool]),
                    "pool": pool,
                    "oldestSeconds": round(oldest),
                },
            )
        )
    return out


def _pre_pulls(placement_skews: Sequence[PlacementSkew]) -> list[Advice]:
    seen: dict[str, Advice] = {}
    for heap in placement_skews:
        for image in heap.images:
            if image.here and image.size_bytes and image.missing and image.name not in seen:
                seen[image.name] = Advice(
                    topic=Topic.PRE_PULL,
                    subject=image.name,
                    seen=f"{image.size_bytes / 2**20:.0f} MiB, on {heap.eligible - image.missing} node(s) of "
                    f"{heap.eligible} that {heap.service} may use",
                    do="pull it on every one of them beforehand (a DaemonSet): then it speaks for no node in "
                    "particular, and starting is faster",
                    figures={
                        "bytes": image.size_bytes,
                        "nodesWithIt": float(heap.eligible - image.missing),
                        "nodes": float(heap.eligible),
                    },
                )
    return list(seen.values())


def _waiting(snapshot: ClusterSnapshot) -> list[Advice]:
    pods = snapshot.pods
    waiting = (pods.node < 0) & (pods.phase == PENDING) & ~pods.terminating & ~pods.gated & (pods.owner >= 0)
    tops = snapshot.top_owner[pods.owner[waiting]]
    counts = np.bincount(tops, minlength=len(snapshot.owners))
    caps = {
        "CronJob": "concurrencyPolicy: Forbid, and a smaller parallelism",
        "Job": "a smaller parallelism",
    }
    return [
        Advice(
            topic=Topic.PENDING,
            subject=str(snapshot.service_of(top)),
            seen=f"{counts[top]} of its pods wait for a node",
            do=f"cap them: {caps.get(snapshot.owners[top].kind, 'fewer replicas')}, or a ResourceQuota (count/pods) "
            f"for namespace {snapshot.owners[top].namespace}",
            figures={"pending": float(counts[top])},
        )
        for top in sorted(np.flatnonzero(counts >= PENDING_AT_LEAST).tolist(), key=lambda top: (-counts[top], top))
    ]


def _autoscalers(snapshot: ClusterSnapshot, pools: Sequence[str]) -> list[Advice]:
    marked: dict[tuple[str, str], int] = {}
    for pool, taints in zip(pools, snapshot.nodes.taints, strict=True):
        for key in sorted({taint.key for taint in taints} & set(LEAVING_TAINTS)):
            marked[pool, key] = marked.get((pool, key), 0) + 1
    return [
        Advice(
            topic=Topic.AUTOSCALER,
            subject=pool or "no pool",
            seen=f"{count} of {pools.count(pool)} nodes carry {key}: an autoscaler is removing them",
            do="don't spread or pack this pool while it scales: let one of the two decide",
            figures={"nodes": float(count), "taint": key},
        )
        for (pool, key), count in sorted(marked.items())
    ]


def _not_modelled(config: SchedulerConfig) -> list[Advice]:
    return [
        Advice(
            topic=Topic.NOT_MODELLED,
            subject=each,
            seen="the scheduler's file has it, our model doesn't",
            do="carry it over by hand; figures above leave it out",
            figures={},
        )
        for each in config.unknown
    ]
