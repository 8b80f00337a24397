"""ResourceQuotas of namespaces: what new pods may still request."""

from collections.abc import Mapping
from dataclasses import dataclass

from rebalancer.model.cluster.objects import PodTemplate

CPU_QUOTAS = ("cpu", "requests.cpu", "limits.cpu")
MEMORY_QUOTAS = ("memory", "requests.memory", "limits.memory")
POD_QUOTAS = ("pods", "count/pods")
REQUESTS = "requests."


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaScope:
    """One condition on the pods that a quota counts. `operator` is In, NotIn, Exists or DoesNotExist."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def matches(self, template: PodTemplate) -> bool:
        """Whether pods of the template meet it; True where that isn't known."""
        match self.name:
            case "BestEffort":
                return template.qos == "BestEffort"
            case "NotBestEffort":
                return template.qos != "BestEffort"
            case "Terminating":
                # pods with a deadline belong to Jobs
                return False
            case "CrossNamespacePodAffinity":
                return _looks_into_other_namespaces(template)
            case "PriorityClass":
                inside = template.priority_class in self.values
                present = bool(template.priority_class)
                held = {"In": inside, "NotIn": not inside, "Exists": present, "DoesNotExist": not present}
                return held.get(self.operator, True)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """A ResourceQuota with its controller's last status."""

    namespace: str
    name: str
    free: Mapping[str, float]
    """Resource as the quota names it -> hard less used: millicores of CPU, otherwise the resource's own unit."""
    scopes: tuple[QuotaScope, ...] = ()
    """All must match."""

    def counts(self, template: PodTemplate) -> bool:
        """Whether pods of the template are counted."""
        return all(scope.matches(template) for scope in self.scopes)


def _looks_into_other_namespaces(template: PodTemplate) -> bool:
    """Whether a term of its pod affinity or anti-affinity names namespaces."""
    affinity = template.affinity
    sides = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
    terms = [
        term
        for side in sides
        if side is not None
        for term in (*side.required, *(each.pod_affinity_term for each in side.preferred))
    ]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def quota_use(resource: str, template: PodTemplate) -> float:
    """What one pod of the template uses of a quota, in the units of `ResourceQuota.free`; of limits, which aren't read,
    at least as much as it requests. 0 for what is no resource of pods."""
    if resource in POD_QUOTAS:
        return 1.0
    if resource in CPU_QUOTAS:
        return template.cpu_request_millicores
    if resource in MEMORY_QUOTAS:
        return template.memory_request_bytes
    return (
        template.extended_requests.get(resource.removeprefix(REQUESTS), 0.0) if resource.startswith(REQUESTS) else 0.0
    )
