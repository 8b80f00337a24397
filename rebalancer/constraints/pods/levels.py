"""Service level of a pod, and the cost of its eviction."""

from rebalancer.constraints.pods.lists import glob_matches, service_name
from rebalancer.constraints.pods.trust import NONE, Lifted
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.levels import ServiceLevels

NO_LEVEL = ""
"""The level of every pod if the policy has none."""


def level_of(pod: Pod, levels: ServiceLevels, lifted: Lifted = NONE) -> str | Refusal:
    """Name of the pod's level (NO_LEVEL if the policy has none), or why the level forbids its eviction. `lifted`:
    shields of the pod that don't count.

    An annotation or label that names an unknown level refuses, also if the policy has no levels.
    """
    named = None if "Level" in lifted else _named(pod, levels)
    if named is not None:
        where, name = named
        if levels.named(name) is None:
            known = ", ".join(level.name for level in levels.levels) or "none"
            return Refusal.of(Reason.UNKNOWN_LEVEL, f"{where} is {name!r}, levels are: {known}")
    else:
        name = _mapped(pod, levels)
    level = levels.named(name)
    if level is not None and not level.evict:
        return Refusal.of(Reason.LEVEL_FORBIDS, name)
    return name


def names_level(pod: Pod, levels: ServiceLevels) -> bool:
    """Whether the pod names its level itself."""
    return _named(pod, levels) is not None


def cost_of(level: str, levels: ServiceLevels) -> float:
    """Relative cost of an eviction in this level; 1.0 for NO_LEVEL and for an unknown name."""
    found = levels.named(level)
    return 1.0 if found is None else found.cost


def _named(pod: Pod, levels: ServiceLevels) -> tuple[str, str] | None:
    """(where, level name) from the pod's own annotation or label."""
    for where, key, found in (
        ("annotation", levels.annotation, pod.template.annotations),
        ("label", levels.label, pod.template.labels),
    ):
        if key is not None and key in found:
            return f"{where} {key}", found[key]
    return None


def _mapped(pod: Pod, levels: ServiceLevels) -> str:
    service = service_name(pod)
    for name, globs in levels.services.items():
        if glob_matches(globs, service):
            return name
    return levels.priority_classes.get(pod.template.priority_class) or levels.default or NO_LEVEL
