"""Advice on the configuration of kube-scheduler, each piece with its numbers.

It is based on the snapshot alone. Advised profiles are the current ones with the changes of the advice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.figures import counted, size
from rebalancer.placement.scheduler.engine import Engine
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
from rebalancer.planner.explain.skew import MAX_P_VALUE, NEVER_SKEWED, PlacementSkew, placement_skew_of, tail
from rebalancer.policy.schema.strategies import Strategy
from rebalancer.projection.leaving import AUTOSCALERS, CANDIDATE

SPREAD_THEM = "give its pods topologySpreadConstraints"
BY_PLUGIN = {
    "NodeAffinity": "its preferred node affinity decides: lower its weight, or spread the pods",
    "InterPodAffinity": "preferred pod affinity decides: lower its weight, or spread the pods",
    "TaintToleration": "other nodes have PreferNoSchedule taints: remove those that are no longer needed",
}

CROWD_AT_LEAST = 10
"""Young pods of one CronJob or Job in a small pool; in a larger one, one for every two nodes."""
YOUNG_SECONDS = 1800.0
PENDING_AT_LEAST = 20
"""Pending pods of one owner."""
MAX_PLACEMENT_SKEWS = 20
SERVICES_LOOKED_AT = 100
"""Services that are scored, those with the most pods in excess first."""


class Topic(StrEnum):
    """Topic of a piece of advice."""

    STRATEGY = "ScoringStrategy"
    IMAGE_LOCALITY = "ImageLocality"
    PLACEMENT_SKEW = "PlacementSkew"
    CROWD = "Crowd"
    PRE_PULL = "PrePull"
    PENDING = "PendingCap"
    AUTOSCALER = "Autoscaler"
    NOT_MODELLED = "NotModelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An observation and the recommendation for it."""

    topic: Topic
    subject: str
    """A service, an image, a pool, or the scheduler."""
    observation: str
    """One sentence with the numbers."""
    recommendation: str
    figures: Mapping[str, float | str | None]
    """The same numbers, for programs."""


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
    """`engine` is the scheduler over the snapshot; `strategies` are the policy's; `pools` (nodes,)
    names of the nodes' pools, empty for none."""
    placement_skews = find_placement_skews(snapshot, engine, now)
    strategy, packing = _strategy(strategies, config)
    by_image = [each for each in placement_skews if each.next_pod.decided_by == "ImageLocality"]
    images = [_image_locality(skew, config) for skew in by_image]
    others = [_placement_skew(skew, snapshot) for skew in placement_skews if skew not in by_image]
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
            why_packing=strategy.observation if strategy is not None else "",
            placement_skews=[
                (skew, f"{each.subject}: {each.observation}") for skew, each in zip(by_image, images, strict=True)
            ],
            crowds=[f"{each.subject}: {each.observation}" for each in crowds],
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
        # a fair share among all nodes is the smallest: what is no skew by it is none among fewer nodes
        more_than_fair = count > math.ceil(total * part) and snapshot.owners[top].kind not in NEVER_SKEWED
        if more_than_fair and tail(total, count, part) < MAX_P_VALUE:
            suspects.append((count - total * part, top, node))
    suspects.sort(key=lambda each: (-each[0], each[1], each[2]))
    found = (placement_skew_of(snapshot, engine, top, node, now) for _, top, node in suspects[:SERVICES_LOOKED_AT])
    return [each for each in found if each is not None and each.skewed][:MAX_PLACEMENT_SKEWS]


# ---- observations


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
    return Advice(
        topic=Topic.STRATEGY, subject=profile.name, observation=seen, recommendation=do, figures=figures
    ), packing


def _image_locality(skew: PlacementSkew, config: SchedulerConfig) -> Advice:
    decisive = skew.next_pod.decisive
    assert decisive is not None
    weight = config.profiles[skew.pod.template.scheduler_name].weights["ImageLocality"]
    desired = image_weight(skew, weight)
    return Advice(
        topic=Topic.IMAGE_LOCALITY,
        subject=str(skew.service),
        observation=f"{_counts(skew)}; ImageLocality gives this node {decisive.here:g} points, the median of "
        f"{skew.next_pod.feasible} nodes {decisive.median:g}; all plugins together put it "
        f"{skew.next_pod.total_lead:+g} points ahead",
        recommendation="disable ImageLocality"
        if not desired
        else f"set the weight of ImageLocality to {desired} instead of {weight}",
        figures={**_figures(skew), "weight": float(weight), "wantedWeight": float(desired)},
    )


def _placement_skew(skew: PlacementSkew, snapshot: ClusterSnapshot) -> Advice:
    decisive = skew.next_pod.decisive
    if decisive is not None:
        seen = f"{_counts(skew)}; {decisive.plugin} gives this node {decisive.here:g} points, the median of "
        seen += f"{skew.next_pod.feasible} nodes {decisive.median:g}"
    elif skew.next_pod.refused_by is not None:
        seen = f"{_counts(skew)}; no further pods for now: {skew.next_pod.refused_by[0]}: {skew.next_pod.refused_by[1]}"
    else:
        seen = f"{_counts(skew)}; no score plugin favours the node any more"
    spreads = "review its topologySpreadConstraints" if skew.pod.template.topology_spread else SPREAD_THEM
    return Advice(
        topic=Topic.PLACEMENT_SKEW,
        subject=str(skew.service),
        observation=f"{seen} (node {snapshot.nodes.names[skew.node]})",
        recommendation=BY_PLUGIN.get(decisive.plugin, spreads) if decisive is not None else spreads,
        figures=_figures(skew),
    )


def _counts(skew: PlacementSkew) -> str:
    return (
        f"{skew.here} of {skew.replicas} pods are on {skew.pod.node_name}, its fair share of {skew.eligible} nodes "
        f"is {skew.fair:.1f}"
    )


def _figures(skew: PlacementSkew) -> dict[str, float | str | None]:
    decisive = skew.next_pod.decisive
    return {
        "node": skew.pod.node_name,
        "podsHere": float(skew.here),
        "pods": float(skew.replicas),
        "fairShare": round(skew.fair, 3),
        "nodes": float(skew.eligible),
        "plugin": decisive.plugin if decisive is not None else None,
        "pointsHere": decisive.here if decisive is not None else None,
        "pointsMedian": decisive.median if decisive is not None else None,
        "totalScoreLead": skew.next_pod.total_lead if skew.next_pod.takes_more else None,
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
                observation=f"{kind} with {len(members)} pods younger than {YOUNG_SECONDS / 60:.0f} minutes (the "
                f"oldest {oldest / 60:.0f}) on {on} of {sizes[pool]} nodes of pool {pool or 'none'}; default spreading "
                "leaves out pods of Jobs",
                recommendation=f"schedulerName {CROWD_PROFILE} and topologySpreadConstraints over "
                "kubernetes.io/hostname (ScheduleAnyway, with a labelSelector) in its pod template",
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
    for skew in placement_skews:
        for image in skew.images:
            if image.here and image.size_bytes and image.missing and image.name not in seen:
                seen[image.name] = Advice(
                    topic=Topic.PRE_PULL,
                    subject=image.name,
                    observation=f"{size(image.size_bytes)}, on {skew.eligible - image.missing} of "
                    f"{counted(skew.eligible, 'node')} that {skew.service} may use",
                    recommendation="pull it on all of them beforehand (a DaemonSet): then it favours no node, and pods "
                    "start faster",
                    figures={
                        "bytes": image.size_bytes,
                        "nodesWithIt": float(skew.eligible - image.missing),
                        "nodes": float(skew.eligible),
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
            observation=f"{counts[top]} of its pods are pending",
            recommendation=f"cap them: {caps.get(snapshot.owners[top].kind, 'fewer replicas')}, or a ResourceQuota "
            f"(count/pods) for namespace {snapshot.owners[top].namespace}",
            figures={"pending": float(counts[top])},
        )
        for top in sorted(np.flatnonzero(counts >= PENDING_AT_LEAST).tolist(), key=lambda top: (-counts[top], top))
    ]


def _autoscalers(snapshot: ClusterSnapshot, pools: Sequence[str]) -> list[Advice]:
    marked: dict[tuple[str, str], int] = {}
    for pool, taints in zip(pools, snapshot.nodes.taints, strict=True):
        for key in sorted({taint.key for taint in taints} & {CANDIDATE, *AUTOSCALERS}):
            marked[pool, key] = marked.get((pool, key), 0) + 1
    return [
        Advice(
            topic=Topic.AUTOSCALER,
            subject=pool or "no pool",
            observation=f"{count} of {pools.count(pool)} nodes carry {key}: an autoscaler is removing them",
            recommendation="don't spread or pack this pool while the autoscaler scales it: keep only one of the two",
            figures={"nodes": float(count), "taint": key},
        )
        for (pool, key), count in sorted(marked.items())
    ]


def _not_modelled(config: SchedulerConfig) -> list[Advice]:
    return [
        Advice(
            topic=Topic.NOT_MODELLED,
            subject=each,
            observation="it is in the scheduler's configuration and not modelled",
            recommendation="copy it by hand; the figures above leave it out",
            figures={},
        )
        for each in config.unknown
    ]
