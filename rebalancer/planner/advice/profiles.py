"""Advised profiles of kube-scheduler: the current ones with changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rebalancer.model.cluster.scheduler import (
    DEFAULT_SCHEDULER,
    DEFAULT_WEIGHTS,
    FitStrategy,
    SchedulerConfig,
    SchedulerProfile,
)
from rebalancer.planner.explain.skew import PlacementSkew

CROWD_PROFILE, PACKING_PROFILE = "crowd-scheduler", "packing-scheduler"
CROWD_SPREAD_WEIGHT = 5
"""Weight of PodTopologySpread in the profile for crowds, high against all other plugins together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How the policy's strategies fill nodes."""

    default: FitStrategy | None = None
    """None where no strategy decides it."""
    apart: bool = False
    """Some pools are packed while others are spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedProfile:
    """An advised profile with the reasons for its changes."""

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
    """`placement_skews`: those that ImageLocality decides, with their reasons; `crowds`: the reasons for a profile of
    their own."""
    main = main_profile(config)
    out = []
    for running in config.profiles.values():
        profile, reasons = running, []
        mine = [each for each in placement_skews if each[0].pod.template.scheduler_name == running.name]
        if mine:
            desired = min(image_weight(skew, running.weights["ImageLocality"]) for skew, _ in mine)
            profile = with_weight(profile, "ImageLocality", desired)
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
    """The default scheduler's profile, else the first."""
    return config.profiles.get(DEFAULT_SCHEDULER) or next(iter(config.profiles.values()))


def direction(profile: SchedulerProfile) -> FitStrategy:
    """Whether the profile prefers full or empty nodes."""
    if profile.fit_strategy != "RequestedToCapacityRatio":
        return profile.fit_strategy
    return "MostAllocated" if profile.fit_shape[-1][1] > profile.fit_shape[0][1] else "LeastAllocated"


def image_weight(skew: PlacementSkew, weight: int) -> int:
    """Advised weight of ImageLocality: 1 where the node has no lead with it, else 0 (off)."""
    decisive = skew.next_pod.decisive
    if decisive is None or weight <= 1:
        return 0
    return 1 if skew.next_pod.total_lead - decisive.lead * (1 - 1 / weight) <= 0 else 0


def with_weight(profile: SchedulerProfile, plugin: str, weight: int) -> SchedulerProfile:
    """The profile with another weight of a score plugin; 0 = off."""
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
