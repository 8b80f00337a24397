"""Scopes of limits: which count an eviction, and which checks it has to pass in each."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.pods.levels import level_of
from rebalancer.constraints.pods.lists import glob_matches
from rebalancer.constraints.pods.trust import Trust
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import Check, Scope
from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import ScopeLimits, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRule:
    """How the scopes of one kind count, and what limits them."""

    kind: str
    """A key of `model.decisions.limits.SCOPE_KINDS`."""
    name: Callable[[Eviction, ClusterSnapshot], str | None]
    """Name of the scope that counts the eviction; None = none does."""
    limits: Callable[[RebalancerPolicy, str], ScopeLimits | None]
    """Limits of the scope of that name; None = none."""
    base: Callable[["LimitRules", str, Eviction | None], int] = lambda rules, name, eviction: 0
    """What a percentage is taken of; without an eviction where a limit is only shown."""
    pull_bytes: Callable[[RebalancerPolicy], int | None] = lambda policy: None
    """Bytes of images that may be pulled at once."""
    names: Callable[["LimitRules"], Iterable[str]] | None = None
    """Scopes that are always shown; None = those with ledger entries."""
    reason: Reason | None = None
    """Code of a refusal; None = only cooldowns look at it."""


def _pool_limits(policy: RebalancerPolicy, name: str) -> ScopeLimits:
    own = next((pool.limits for pool in policy.pools if pool.name == name), None)
    return policy.limits.pool if own is None else own


def service_limits(policy: RebalancerPolicy, name: str) -> ScopeLimits:
    """Limits of the service of that identity: those of each service, with the fields that the first matching entry of
    `limits.services` sets."""
    every = policy.limits.service
    own = next((own for glob, own in policy.limits.services.items() if glob_matches((glob,), name)), None)
    return (
        every
        if own is None
        else every.model_copy(update={field: getattr(own, field) for field in own.model_fields_set})
    )


def _level_limits(policy: RebalancerPolicy, name: str) -> ScopeLimits | None:
    level = policy.service_levels.named(name)
    return None if level is None else level.limits


def _service_desired(rules: "LimitRules", name: str, eviction: Eviction | None) -> int:
    if eviction is None:
        return rules.service_desired.get(name, 0)
    return rules.snapshot.replicas(int(rules.snapshot.pods.owner[eviction.in_plan.pod_index]))[0]


SCOPE_RULES: tuple[ScopeRule, ...] = (
    ScopeRule(
        kind="global",
        name=lambda eviction, snapshot: "",
        limits=lambda policy, name: policy.limits.global_,
        base=lambda rules, name, eviction: len(rules.snapshot.nodes) + rules.nodes_elsewhere,
        names=lambda rules: [""],
        reason=Reason.LIMIT_GLOBAL,
    ),
    ScopeRule(
        kind="cluster",
        name=lambda eviction, snapshot: "",
        limits=lambda policy, name: policy.limits.cluster,
        base=lambda rules, name, eviction: len(rules.snapshot.nodes),
        names=lambda rules: [""],
        reason=Reason.LIMIT_CLUSTER,
    ),
    ScopeRule(
        kind="pool",
        name=lambda eviction, snapshot: eviction.pool or None,
        limits=_pool_limits,
        base=lambda rules, name, eviction: rules.pool_nodes.get(name, 0),
        names=lambda rules: rules.pool_nodes,
        reason=Reason.LIMIT_POOL,
    ),
    ScopeRule(
        kind="node",
        name=lambda eviction, snapshot: eviction.node or None,
        limits=lambda policy, name: policy.limits.node,
        reason=Reason.LIMIT_NODE,
    ),
    ScopeRule(
        kind="namespace",
        name=lambda eviction, snapshot: eviction.namespace,
        limits=lambda policy, name: policy.limits.namespace,
        base=lambda rules, name, eviction: rules.namespace_desired.get(name, 0),
        reason=Reason.LIMIT_NAMESPACE,
    ),
    ScopeRule(
        kind="service",
        name=lambda eviction, snapshot: eviction.service_identity,
        limits=service_limits,
        base=_service_desired,
        reason=Reason.LIMIT_SERVICE,
    ),
    ScopeRule(
        kind="serviceNode",
        name=lambda eviction, snapshot: f"{eviction.node}/{eviction.service_identity}" if eviction.node else None,
        limits=lambda policy, name: None,
    ),
    ScopeRule(
        kind="level",
        name=lambda eviction, snapshot: eviction.level or None,
        limits=_level_limits,
        base=lambda rules, name, eviction: rules.level_desired.get(name, 0),
        names=lambda rules: [level.name for level in rules.policy.service_levels.levels],
        reason=Reason.LIMIT_LEVEL,
    ),
    ScopeRule(
        kind="landing",
        name=lambda eviction, snapshot: eviction.target_node or None,
        limits=lambda policy, name: ScopeLimits().model_copy(update={"in_flight": policy.limits.replacements.per_node}),
        reason=Reason.LIMIT_REPLACEMENTS,
    ),
    ScopeRule(
        kind="pulls",
        # also where the bytes are not known
        name=lambda eviction, snapshot: None if eviction.pull_bytes <= 0 else eviction.target_pool or None,
        limits=lambda policy, name: None,
        pull_bytes=lambda policy: policy.limits.replacements.pull_bytes_per_pool,
        names=lambda rules: rules.pool_nodes,
        reason=Reason.LIMIT_IMAGE_PULLS,
    ),
)
"""In the order of `limits`' output, and of checks: of several that deny for equally long, the first is the reason."""

RULE_OF = {rule.kind: rule for rule in SCOPE_RULES}


@dataclass(frozen=True, kw_only=True, eq=False)
class LimitRules:
    """The scopes and checks of evictions in one cycle."""

    policy: RebalancerPolicy
    snapshot: ClusterSnapshot
    pool_of: NDArray[np.int32]
    """(nodes,) index into the policy's pools, -1 for none."""
    nodes_elsewhere: int = 0
    """Nodes of the other clusters that share the database."""
    _limits: dict[Scope, ScopeLimits | None] = field(default_factory=dict, repr=False)
    _of_evictions: dict[Scope, list[Check]] = field(default_factory=dict, repr=False)

    def scopes(self, eviction: Eviction) -> tuple[Scope, ...]:
        """Every scope that counts the eviction, in locking order."""
        return eviction_scopes(eviction, self.policy, self.snapshot)

    def checks(self, eviction: Eviction) -> list[Check]:
        """Every check that the eviction has to pass in its `scopes`."""
        counted = {scope.kind: scope for scope in eviction.scopes}
        return [
            check
            for rule in SCOPE_RULES
            if rule.kind in counted
            for check in self._checks(rule, counted[rule.kind], eviction)
        ]

    def every_check(self, seen: Collection[Scope]) -> list[Check]:
        """The checks of every scope that is always shown, and of those of the other kinds in `seen`."""
        out: list[Check] = []
        for rule in SCOPE_RULES:
            for name in rule.names(self) if rule.names is not None else ():
                out += self._checks(rule, Scope.of(rule.kind, self.policy.cluster, name))
        for scope in sorted(seen):
            if (rule := RULE_OF[scope.kind]).names is None:
                out += self._checks(rule, scope)
        return out

    def _checks(self, rule: ScopeRule, scope: Scope, eviction: Eviction | None = None) -> list[Check]:
        name = scope.name
        if scope not in self._limits:
            self._limits[scope] = rule.limits(self.policy, name)
        if eviction is None:
            out = _limit_checks(scope, self._limits[scope], lambda: rule.base(self, name, None))
        else:
            # the same for every eviction that the scope counts
            if scope not in self._of_evictions:
                base = partial(rule.base, self, name, eviction)
                self._of_evictions[scope] = _limit_checks(scope, self._limits[scope], base)
            out = list(self._of_evictions[scope])
        if (at_most := rule.pull_bytes(self.policy)) is not None:
            amount = 0.0 if eviction is None else eviction.pull_bytes
            out.append(Check(scope=scope, kind="bytes", at_most=at_most, amount=amount))
        return out

    # ---- what percentages are taken of; counted only where a limit is a percentage

    @cached_property
    def pool_nodes(self) -> dict[str, int]:
        """Pool -> its nodes."""
        counts = np.bincount(self.pool_of[self.pool_of >= 0], minlength=len(self.policy.pools))
        return {pool.name: int(count) for pool, count in zip(self.policy.pools, counts, strict=True)}

    @cached_property
    def namespace_desired(self) -> dict[str, int]:
        """Namespace -> desired replicas of its services."""
        out: dict[str, int] = {}
        for index in self._services:
            namespace = self.snapshot.owners[index].namespace
            out[namespace] = out.get(namespace, 0) + self.snapshot.replicas(index)[0]
        return out

    @cached_property
    def service_desired(self) -> dict[str, int]:
        """Service (namespace/name) -> desired replicas."""
        return {str(self.snapshot.service_of(index)): self.snapshot.replicas(index)[0] for index in self._services}

    @cached_property
    def level_desired(self) -> dict[str, int]:
        """Level -> desired replicas of its services; a service has the level of its first pod."""
        out: dict[str, int] = {}
        trust = Trust(self.policy.trust, self.snapshot, now=self.snapshot.taken)
        for index in self._services:
            members = self.snapshot.pods_of(index).tolist()
            if not members:
                continue
            pod = self.snapshot.pod(members[0])
            level = level_of(pod, self.policy.service_levels, trust.lifted_in(pod.namespace))
            if isinstance(level, str):
                out[level] = out.get(level, 0) + self.snapshot.replicas(index)[0]
        return out

    @cached_property
    def _services(self) -> list[int]:
        """Top owners, as indices, without DaemonSets."""
        owners = self.snapshot.owners
        return [index for index, each in enumerate(owners) if each.parent < 0 and each.kind != "DaemonSet"]


def eviction_scopes(eviction: Eviction, policy: RebalancerPolicy, snapshot: ClusterSnapshot) -> tuple[Scope, ...]:
    """Every scope that counts the eviction, in locking order."""
    names = ((rule.kind, rule.name(eviction, snapshot)) for rule in SCOPE_RULES)
    return tuple(sorted(Scope.of(kind, policy.cluster, name) for kind, name in names if name is not None))


def _limit_checks(scope: Scope, limits: ScopeLimits | None, base: Callable[[], int]) -> list[Check]:
    if limits is None:
        return []
    out = [
        Check(scope=scope, kind="rate", at_most=_resolved(rate.max, base, rate.at_least), per_seconds=rate.per)
        for rate in limits.evictions
    ]
    if limits.spacing:
        out.append(Check(scope=scope, kind="spacing", at_most=1, per_seconds=limits.spacing))
    if limits.in_flight is not None:
        at_most = _resolved(limits.in_flight, base, limits.in_flight_at_least)
        out.append(Check(scope=scope, kind="inFlight", at_most=at_most))
    return out


def _resolved(limit: int | str, base: Callable[[], int], at_least: int) -> int:
    return limit if isinstance(limit, int) else resolve(limit, base(), at_least)
