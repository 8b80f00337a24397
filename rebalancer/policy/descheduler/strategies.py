"""Conversion of the arguments of each strategy."""

from dataclasses import dataclass, field
from typing import Any

from rebalancer.policy.descheduler.notes import DIFFERENT, UNSUPPORTED, FieldPath, Keys, Notes
from rebalancer.policy.descheduler.utilization import ImportedThresholds, high_node_utilization, low_node_utilization
from rebalancer.policy.schema.types import format_duration

FINISHED = {"Succeeded", "Failed"}
SHORTEST_LIFE = 60

SAME_ARGS: dict[str, tuple[str, ...]] = {
    "RemoveDuplicates": ("excludeOwnerKinds",),
    "RemovePodsViolatingInterPodAntiAffinity": (),
    "RemovePodsViolatingNodeAffinity": ("nodeAffinityType",),
    "RemovePodsViolatingNodeTaints": ("includePreferNoSchedule", "excludedTaints", "includedTaints"),
    "RemovePodsViolatingTopologySpreadConstraint": ("constraints",),
    "RemovePodsHavingTooManyRestarts": ("podRestartThreshold", "includingInitContainers", "states"),
    "PodLifeTime": ("states", "includingInitContainers"),
    "RemoveFailedPods": ("reasons", "exitCodes", "includingInitContainers", "excludeOwnerKinds"),
}
"""Strategy -> arguments with the same name and meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One converted strategy."""

    name: str
    args: dict[str, Any]
    by_pod: bool = True
    """Whether it selects pods by namespace and label."""
    namespaces: list[tuple[FieldPath, str, list[str]]] = field(default_factory=list)
    """(path, include or exclude, namespaces) that become guards."""
    per_node: tuple[FieldPath, int] | None = None
    """Its own limit of evictions per node, with its path."""
    query: str | None = None
    """Its own query of node CPU."""


def make_strategy(name: str, args: Keys, notes: Notes, thresholds: ImportedThresholds) -> Made | None:
    """None if it cannot be converted; the notes hold the reason."""
    args.get("apiVersion")
    args.get("kind")
    if name in ("LowNodeUtilization", "HighNodeUtilization"):
        return _utilization(name, args, notes, thresholds)
    made = {key: args.get(key) for key in SAME_ARGS[name] if args.get(key) not in (None, [])}
    made |= _pods(args)
    if name == "RemovePodsViolatingTopologySpreadConstraint" and "topologyBalanceNodeFit" in args:
        args.get("topologyBalanceNodeFit")
        why = "a pod is only ever evicted if its target nodes are known"
        notes.add((*args.at, "topologyBalanceNodeFit"), DIFFERENT, why)
    if name == "RemovePodsViolatingTopologySpreadConstraint":
        why = "only pods that carry a topology spread constraint are evicted, not others that its selector counts"
        notes.add((), DIFFERENT, why, f"strategies[].{name}")
    if name == "RemovePodsViolatingNodeAffinity" and any("preferred" in each for each in made["nodeAffinityType"]):
        why = "for a preferred rule a pod is evicted only if a better node is certain to take it"
        notes.add((*args.at, "nodeAffinityType"), DIFFERENT, why, "strategies[].args.nodeAffinityType")
    if name == "RemoveFailedPods" and "minPodLifetimeSeconds" in args:
        made["minPodLifetime"] = format_duration(args.get("minPodLifetimeSeconds"))
    if name == "PodLifeTime":
        life = _life_time(args, notes)
        if life is None:
            return None
        made["maxPodLifeTime"] = format_duration(life)
    return Made(name=name, args=made)


def _pods(args: Keys) -> dict[str, Any]:
    namespaces = {key: value for key, value in args.get("namespaces", {}).items() if value}
    selector = args.get("labelSelector", {})
    return {
        **({"namespaces": namespaces} if namespaces else {}),
        **({"labelSelector": selector} if selector else {}),
    }


def _utilization(name: str, args: Keys, notes: Notes, thresholds: ImportedThresholds) -> Made | None:
    read = low_node_utilization if name == "LowNodeUtilization" else high_node_utilization
    made = read(args, notes, thresholds)
    if args.get("numberOfNodes"):
        why = f"without it more pods would be evicted, so {name} is not enabled"
        notes.add((*args.at, "numberOfNodes"), UNSUPPORTED, why)
        made = None
    spaces = args.section("evictableNamespaces")
    namespaces = [
        ((*spaces.at, key), key, list(chosen)) for key in ("include", "exclude") if (chosen := spaces.get(key, []))
    ]
    limits = args.section("evictionLimits")
    most = limits.get("node")
    if made is None:
        return None
    return Made(
        name=name,
        args=made,
        by_pod=False,
        namespaces=namespaces,
        per_node=None if most is None else ((*limits.at, "node"), most),
        query=args.section("metricsUtilization").section("prometheus").get("query"),
    )


def _life_time(args: Keys, notes: Notes) -> float | None:
    """Seconds; None if one of its restrictions has no equivalent."""
    age = args.get("maxPodLifeTimeSeconds")
    if args.get("includingEphemeralContainers"):
        notes.add((*args.at, "includingEphemeralContainers"), UNSUPPORTED, "their states are not considered")
    if any(args.section("ownerKinds").get(key) for key in ("include", "exclude")):
        _without(args, "ownerKinds", notes)
        return None
    if args.get("exitCodes"):
        _without(args, "exitCodes", notes)
        return None
    if args.get("conditions", []):
        # the age of a pod says nothing of how long a condition has held: one may have finished just now
        _without(args, "conditions", notes)
        return None
    wanted = age or 0
    if wanted < SHORTEST_LIFE:
        at = (*args.at, "maxPodLifeTimeSeconds") if age is not None else args.at
        notes.add(at, DIFFERENT, "pods younger than 1m are not evicted", "strategies[].args.maxPodLifeTime")
    return max(wanted, SHORTEST_LIFE)


def _without(args: Keys, key: str, notes: Notes) -> None:
    why = "without it more pods would be evicted, so PodLifeTime is not enabled"
    notes.add((*args.at, key), UNSUPPORTED, why)
