"""Allow and deny lists."""

from fnmatch import fnmatchcase

from rebalancer.constraints.pods.trust import NONE, Lifted
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.lists import EVERYTHING, ListRule, Lists


def refuses(pod: Pod, *, cluster: str, pool: str | None, lists: Lists, lifted: Lifted = NONE) -> Refusal | None:
    """Why the lists reject `pod`, or None. Deny wins; where there are allow rules, one must match.

    `cluster` and `pool` are names; only `*` matches a node in no pool. `lifted`: shields of the pod that don't count.
    """
    for index, rule in enumerate(lists.deny):
        if "Label" in lifted and rule.selector is not None and not rule.selector.is_empty:
            continue
        if matches(rule, pod, cluster=cluster, pool=pool):
            return Refusal.of(Reason.DENY_LISTED, f"deny[{index}], {_shown(rule)}")
    if lists.allow and not any(matches(rule, pod, cluster=cluster, pool=pool) for rule in lists.allow):
        return Refusal.of(Reason.NOT_ALLOW_LISTED, f"none of the {len(lists.allow)} allow rules matches {pod}")
    return None


def service_name(pod: Pod) -> str:
    """`namespace/name` of the pod's service, or of a bare pod."""
    return str(pod.service or pod)


def glob_matches(globs: tuple[str, ...], name: str) -> bool:
    """Whether one of the globs matches, case-sensitively."""
    return globs == EVERYTHING or any(fnmatchcase(name, glob) for glob in globs)


def matches(rule: ListRule, pod: Pod, *, cluster: str, pool: str | None) -> bool:
    """Whether every field of the rule matches the pod."""
    return (
        names_match(rule, cluster=cluster, namespace=pod.namespace, service=service_name(pod))
        and glob_matches(rule.pools, pool or "")
        and glob_matches(rule.nodes, pod.node_name)
        and (rule.selector is None or selector_matches(rule.selector.compiled(), pod.template.labels))
    )


def names_match(rule: ListRule, *, cluster: str, namespace: str, service: str) -> bool:
    """Whether the fields match that a service has without its pods. `service` as in `service_name`."""
    names = ((rule.clusters, cluster), (rule.namespaces, namespace), (rule.services, service))
    return all(glob_matches(globs, name) for globs, name in names)


def _shown(rule: ListRule) -> str:
    """The rule in the policy's terms."""
    parts = [
        f"{field} {', '.join(globs)}"
        for field in ("clusters", "pools", "nodes", "namespaces", "services")
        if (globs := getattr(rule, field)) != EVERYTHING
    ]
    if rule.selector is not None and not rule.selector.is_empty:
        parts.append("its selector")
    return " and ".join(parts) or "which matches every pod"
