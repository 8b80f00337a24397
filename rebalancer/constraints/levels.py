"""How carefully: the service level of a pod, and what it costs to move it."""

from rebalancer.constraints.lists import glob_matches, service_name
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import Pod
from rebalancer.policy.schema.levels import ServiceLevels

NO_LEVEL = ""
"""Where the policy has no levels."""


def level_of(pod: Pod, levels: ServiceLevels) -> str | Refusal:
    """The name of the pod's level (NO_LEVEL where the policy has none), or why it can't or mustn't be moved.

    An annotation or label that names an unknown level refuses, also where the policy has no levels at all: somebody
    asked for care that we don't know how to take.
    """
    named = _named(pod, levels)
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


def cost_of(level: str, levels: ServiceLevels) -> float:
    """What a move in this level costs, against the others; 1.0 for NO_LEVEL and for a name that isn't there."""
    found = levels.named(level)
    return 1.0 if found is None else found.cost


def _named(pod: Pod, levels: ServiceLevels) -> tuple[str, str] | None:
    """(where, level name) as the pod itself says."""
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
