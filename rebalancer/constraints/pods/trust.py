"""How far the policy trusts a pod's creator: shields that don't count.

A shield is what a creator writes so that a pod is not evicted (`policy.schema.trust`). Namespaces without a rule are
trusted with all of them, and so is rebalancer's own namespace.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.policy.schema.trust import SHIELDS, Shield, TrustRule

MAINTENANCE: Final = "NodeMaintenance"
"""The strategy against which `maintenanceShields` count."""

Lifted = frozenset[Shield]
"""Shields that don't count."""

NONE: Final[Lifted] = frozenset()
ALL: Final[Lifted] = frozenset(SHIELDS)
WRITTEN: Final[Lifted] = ALL - {"Health"}
"""Shields that are written, not a state of the pod or its service."""


class Trust:
    """The rules of the policy for the namespaces of one snapshot."""

    def __init__(
        self, rules: Sequence[TrustRule], snapshot: ClusterSnapshot, *, now: float, own_namespace: str | None = None
    ) -> None:
        """`now` is in seconds since the epoch."""
        self._rules = rules
        self._snapshot = snapshot
        self._now = now
        self._own_namespace = own_namespace
        self._rule_of: dict[str, TrustRule | None] = {}
        self._kept: dict[tuple[str, bool], frozenset[int]] = {}

    def lifted_in(self, namespace: str, *, maintenance: bool = False) -> Lifted:
        """Shields that don't count in a namespace, whatever the pod."""
        rule = self._rule(namespace)
        return NONE if rule is None else ALL - _counted(rule, maintenance=maintenance)

    def lifted(self, pod: Pod, *, strategy: str, shielded: Callable[[Pod, Lifted], bool]) -> Lifted:
        """Shields of the pod that don't count for a strategy. `shielded`: whether a pod has a written shield besides
        those that don't count."""
        rule = self._rule(pod.namespace)
        if rule is None:
            return NONE
        maintenance = strategy == MAINTENANCE
        lifted = self.lifted_in(pod.namespace, maintenance=maintenance)
        if lifted >= WRITTEN or (rule.max_pods is None and rule.max_age is None):
            return lifted
        if rule.max_age is not None and self._now - float(self._snapshot.pods.created[pod.index]) > rule.max_age:
            return lifted | WRITTEN
        if rule.max_pods is None or pod.index in self._keep(pod.namespace, rule, maintenance, lifted, shielded):
            return lifted
        return lifted | WRITTEN

    def _rule(self, namespace: str) -> TrustRule | None:
        if not self._rules or namespace == self._own_namespace:
            return None
        if namespace not in self._rule_of:
            labels = self._snapshot.namespace_labels.get(namespace, {})
            self._rule_of[namespace] = next((each for each in self._rules if _holds(each, namespace, labels)), None)
        return self._rule_of[namespace]

    def _keep(
        self,
        namespace: str,
        rule: TrustRule,
        maintenance: bool,
        lifted: Lifted,
        shielded: Callable[[Pod, Lifted], bool],
    ) -> frozenset[int]:
        """The oldest shielded pods of a namespace, as many as may be."""
        key = namespace, maintenance
        if key not in self._kept:
            snapshot, pods = self._snapshot, self._snapshot.pods
            members = np.flatnonzero(pods.namespace == snapshot.namespaces.index(namespace))
            members = members[snapshot.active[members]]
            oldest = sorted(members.tolist(), key=lambda pod: (float(pods.created[pod]), pods.names[pod]))
            kept: list[int] = []
            for index in oldest:
                if len(kept) >= (rule.max_pods or 0):
                    break
                if rule.max_age is not None and self._now - float(pods.created[index]) > rule.max_age:
                    continue
                if shielded(snapshot.pod(index), lifted):
                    kept.append(index)
            self._kept[key] = frozenset(kept)
        return self._kept[key]


def _counted(rule: TrustRule, *, maintenance: bool) -> Lifted:
    of_maintenance = rule.maintenance_shields if maintenance else None
    return frozenset(rule.shields if of_maintenance is None else of_maintenance)


def _holds(rule: TrustRule, namespace: str, labels: Mapping[str, str]) -> bool:
    return any(fnmatchcase(namespace, glob) for glob in rule.namespaces) and (
        rule.selector is None or selector_matches(rule.selector.compiled(), labels)
    )
