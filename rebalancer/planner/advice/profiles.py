"""Profiles for kube-scheduler: what it runs with now, changed by what is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rebalancer.model.scheduler import (
    DEFAULT_SCHEDULER,
    DEFAULT_WEIGHTS,
    FitStrategy,
    SchedulerConfig,
    SchedulerProfile,
)
from rebalancer.planner.explain.skew import PlacementSkew

CROWD_PROFILE, PACKING_PROFILE = "crowd-scheduler", "packing-scheduler"
CROWD_SPREAD_WEIGHT = 5
"""Of PodTopologySpread in the crowd's profile: all other plugins together must not outweigh it easily."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Which way the policy's strategies want nodes to be filled."""

    default: FitStrategy | None = None
    """None where they say nothing about it."""
    apart: bool = False
    """Some pools are packed while others are evened out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedProfile:
    """A profile to run with, and why it is as it is."""

    profile: SchedulerProfile
    reasons: tuple[str, ...]


def advised_profiles(
    config: SchedulerConfig,
    packing: Packing,
    *,
    why_packing: str,
    placement_skews: Sequence[tuple[PlacementSkew, str]],
    crowds: Sequence[str],
) -> tuple[AdvisedProfile, ...]:
    """`placement_skews` are those for which ImageLocality decides, with their reasons; `crowds` are the reasons for a
    profile of
    their own."""
    main = main_profile(config)
    out = []
    for running in config.profiles.values():
        profile, reasons = running, []
        mine = [each for each in placement_skews if each[0].pod.template.scheduler_name == running.name]
        if mine:
            wanted = min(image_weight(heap, running.weights["ImageLocality"]) for heap, _ in mine)
            profile = with_weight(profile, "ImageLocality", wanted)
            reasons += [f"ImageLocality: {reason}." for _, reason in mine]
        if running.name == main.name and packing.default is not None:
            profile = _filled(profile, packing.default)
            reasons.append(f"NodeResourcesFit: {why_packing}.")
        out.append(AdvisedProfile(profile=profile, reasons=tuple(reasons)))
    if packing.apart and PACKING_PROFILE not in config.profiles:
        reason = "For the pods of the pools that are packed."
        out.append(
            AdvisedProfile(profile=_filled(replace(main, name=PACKING_PROFILE), "MostAllocated"), reasons=(reason,))
        )
    if crowds and CROWD_PROFILE not in config.profiles:
        out.append(_crowd_profile(main, crowds))
    return tuple(out)


def main_profile(config: SchedulerConfig) -> SchedulerProfile:
    """The one for pods that name no scheduler, else the first."""
    return config.profiles.get(DEFAULT_SCHEDULER) or next(iter(config.profiles.values()))


def direction(profile: SchedulerProfile) -> FitStrategy:
    """Whether the profile prefers full nodes or empty ones."""
    if profile.fit_strategy != "RequestedToCapacityRatio":
        return profile.fit_strategy
    return "MostAllocated" if profile.fit_shape[-1][1] > profile.fit_shape[0][1] else "LeastAllocated"


def image_weight(heap: PlacementSkew, weight: int) -> int:
    """For ImageLocality, instead of `weight`: 1 where the node isn't ahead of the median with it, else 0 (off)."""
    decisive = heap.decisive
    if decisive is None or weight <= 1:
        return 0
    return 1 if heap.total_ahead - decisive.by * (1 - 1 / weight) <= 0 else 0


def with_weight(profile: SchedulerProfile, plugin: str, weight: int) -> SchedulerProfile:
    """The same with another weight of a score plugin; 0 = off."""
    weights = {**profile.weights, plugin: weight}
    return replace(profile, weights={name: weights[name] for name in DEFAULT_WEIGHTS if weights.get(name)})


def _filled(profile: SchedulerProfile, strategy: FitStrategy) -> SchedulerProfile:
    return profile if direction(profile) == strategy else replace(profile, fit_strategy=strategy, fit_shape=())


def _crowd_profile(main: SchedulerProfile, crowds: Sequence[str]) -> AdvisedProfile:
    profile = _filled(replace(main, name=CROWD_PROFILE), "LeastAllocated")
    profile = with_weight(with_weight(profile, "ImageLocality", 0), "PodTopologySpread", CROWD_SPREAD_WEIGHT)
    return AdvisedProfile(
        profile=profile,
        reasons=(
            *(f"{each}." for each in crowds),
            f"LeastAllocated, no ImageLocality, PodTopologySpread weighs {CROWD_SPREAD_WEIGHT}.",
            "A profile of the same kube-scheduler, not a second one: two don't see each other's latest decisions.",
            "Its pods need topologySpreadConstraints of their own, which PodTopologySpread then weighs.",
        ),
    )
