"""Open alerts as cycle requests: node, strategy and thresholds of each alert, and the result of the cycle.

An episode is one alert from its start (fingerprint and start time). It stays open until Alertmanager resolves it or it
expires, and is retried when a limit or window may have changed. If measurement and alert disagree, that is recorded and
nothing is evicted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, ThresholdOverride
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport, PodRefusal, Trigger
from rebalancer.model.decisions.ports import Inbox
from rebalancer.model.notation.figures import percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.alerts import AlertRule, Alerts
from rebalancer.policy.schema.policy import Pool, ResourceThresholds, Thresholds

RETRY_SECONDS = 60.0
"""Retry interval when no refusal states a time, and the spacing of the cycles that new alerts about a node start."""

LEAST_EXCESS = 0.01
"""With less left of `alerts.maxExcess`, as a share of the node, an alert changes nothing."""

MAX_RETRY_SECONDS = 900.0
"""Longest retry interval: a window may open in hours, but the node's load or pods change earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionableEpisode:
    """An episode with a node of this cluster, and the strategy that it starts there."""

    episode: AlertEpisode
    node: str
    strategy: str
    override: ThresholdOverride | None = None
    """None: the strategy decides as in its periodic cycles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedEpisode:
    """An episode without a usable node or thresholds."""

    episode: AlertEpisode
    reason: str
    final: bool
    """A retry cannot succeed."""


class AlertSpacing:
    """When new alerts may start a cycle: for the same node, strategy and resource RETRY_SECONDS after the last cycle.
    Otherwise a sender that fires again and again, each time as another alert, would start cycle after cycle. The first
    alert waits for nothing, and the retries of an episode have times of their own."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], float] = {}

    def next_at(self, each: ActionableEpisode, now: float) -> float:
        """The earliest cycle for the episode, in seconds since the epoch."""
        last = self._last.get(_subject(each), -RETRY_SECONDS)
        # a last cycle in the future: the clock was set back
        return now if each.episode.attempts or last > now else max(now, last + RETRY_SECONDS)

    def count(self, handled: Sequence[ActionableEpisode], now: float) -> None:
        """Count the cycle that handled these."""
        self._last = {key: at for key, at in self._last.items() if now - at < RETRY_SECONDS}
        self._last |= {_subject(each): now for each in handled}


def _subject(each: ActionableEpisode) -> tuple[str, str, str]:
    return each.node, each.strategy, "" if each.override is None else each.override.resource


class AlertedNodes:
    """The nodes of a cluster by the labels of alerts, with what was evicted from them."""

    def __init__(
        self, snapshot: ClusterSnapshot, pool_of_node: Mapping[str, str], moves: Sequence[Eviction] = ()
    ) -> None:
        self.pool_of_node = pool_of_node
        self._snapshot = snapshot
        self._moves = moves
        self._by_address = {
            address: name
            for name, addresses in zip(reversed(snapshot.nodes.names), reversed(snapshot.nodes.addresses), strict=True)
            for address in addresses
            if address
        }

    def named(self, value: str) -> str | None:
        """The node of this name or address, with or without a port."""
        for text in (value, value.rpartition(":")[0]):
            if text in self._snapshot.node_index:
                return text
            if (found := self._by_address.get(text.strip("[]"))) is not None:
                return found
        return None

    def evicted_share(self, node: str, resource: str, since: float) -> float:
        """What the pods evicted from a node since then used of a resource, as a share of its capacity."""
        capacity = float(self._snapshot.nodes.cpu_capacity_millicores[self._snapshot.node_index[node]])
        moves = [move for move in self._moves if move.node == node and move.at >= since]
        shares = [move.share_of_node(resource, capacity) for move in moves]
        return sum(each for each in shares if each > 0)


class _RejectedError(Exception):
    """Why an episode changes nothing."""

    def __init__(self, reason: str, *, final: bool = True) -> None:
        super().__init__(reason)
        self.final = final


def resolve_episode(
    episode: AlertEpisode, nodes: AlertedNodes, policy: RebalancerPolicy, *, now: float
) -> ActionableEpisode | RejectedEpisode:
    """The node and strategy of an episode, and the thresholds it sets for them, within the bounds of the policy."""
    try:
        return _resolved(episode, nodes, policy, now=now)
    except _RejectedError as rejected:
        return RejectedEpisode(episode=episode, reason=str(rejected), final=rejected.final)


def _resolved(episode: AlertEpisode, nodes: AlertedNodes, policy: RebalancerPolicy, *, now: float) -> ActionableEpisode:
    rule = policy.alerts.rule_for(episode.alert)
    if rule is None:
        raise _RejectedError(f"the policy has no rule for {episode.alert.name}")
    node = _node_of(episode.alert, nodes, policy)
    pool = next((each for each in policy.pools if each.name == nodes.pool_of_node.get(node)), None)
    if pool is None:
        raise _RejectedError(f"{node} is in no pool of the policy", final=False)
    own_pools = [each.pools for each in policy.strategies if each.name == rule.strategy and "Alert" in each.triggers]
    if not any(names is None or pool.name in names for names in own_pools):
        raise _RejectedError(f"{node} is in no pool of {rule.strategy}", final=False)
    override = _override(episode, rule, node, pool, nodes, policy, now=now) if rule.sets_thresholds else None
    return ActionableEpisode(episode=episode, node=node, strategy=rule.strategy, override=override)


def _override(
    episode: AlertEpisode,
    rule: AlertRule,
    node: str,
    pool: Pool,
    nodes: AlertedNodes,
    policy: RebalancerPolicy,
    *,
    now: float,
) -> ThresholdOverride:
    alert = episode.alert
    resource = policy.alerts.resource_of(alert)
    if resource not in policy.measured_resources:
        known = ", ".join(policy.measured_resources)
        raise _RejectedError(f"{policy.alerts.resource_annotation}: expected one of {known}, got {resource[:40]!r}")
    high, target = _thresholds(alert, rule, _own_thresholds(pool, resource), policy.alerts)
    evicted = nodes.evicted_share(node, resource, excess_since(episode, policy, now))
    left = policy.alerts.max_excess / 100 - evicted
    if left < LEAST_EXCESS:
        what = node if resource == CPU else f"{resource} of {node}"
        bound = f"alerts.maxExcess is {policy.alerts.max_excess:g}%"
        raise _RejectedError(f"{percent(evicted)} of {what} was evicted already, {bound}", final=False)
    return ThresholdOverride(
        node=node,
        strategy=rule.strategy,
        resource=resource,
        high=high / 100,
        target=target / 100,
        source=f"alert {alert.name}",
        max_excess=left,
    )


def _node_of(alert: Alert, nodes: AlertedNodes, policy: RebalancerPolicy) -> str:
    named = [value for label in policy.alerts.node_labels if (value := alert.labels.get(label))]
    if not named:
        raise _RejectedError(f"the alert names no node: expected one of {', '.join(policy.alerts.node_labels)}")
    node = next((found for value in named if (found := nodes.named(value)) is not None), None)
    if node is None:
        raise _RejectedError(f"no node of this cluster is {' or '.join(named)}", final=False)
    return node


def _own_thresholds(pool: Pool, resource: str) -> Thresholds | ResourceThresholds | None:
    """Of the pool. Of a resource besides CPU there must be some: an alert replaces them, and landings keep them."""
    if resource == CPU:
        return pool.thresholds
    own = pool.thresholds.resources.get(resource) if pool.thresholds is not None else None
    if own is None:
        raise _RejectedError(f"pool {pool.name} has no thresholds of {resource}")
    return own


def _thresholds(
    alert: Alert, rule: AlertRule, own: Thresholds | ResourceThresholds | None, bounds: Alerts
) -> tuple[float, float]:
    """(high, target) in percent."""
    high = _percent(alert, bounds.high_annotation) or rule.high or (own.high if own else None)
    asked = _percent(alert, bounds.target_annotation)
    if high is None:
        raise _RejectedError("neither alert nor policy sets a high threshold")
    if high < bounds.min_high:
        raise _RejectedError(f"its high of {high:g}% is below alerts.minHigh ({bounds.min_high:g}%)")
    lowest = bounds.lowest_target
    if asked is not None and asked < lowest:
        raise _RejectedError(f"its target of {asked:g}% is below alerts.minTarget ({lowest:g}%)")
    target = asked or rule.target
    if target is None:
        target = max(high - (own.high - own.target if own else 10.0), lowest)
    if not 0 < target < high:
        raise _RejectedError(f"expected target < high, got {target:g} and {high:g}")
    return high, target


def excess_since(episode: AlertEpisode, policy: RebalancerPolicy, now: float) -> float:
    """From when evictions count in `alerts.maxExcess`: since the alert came, but an alert that begins again and again
    is no way around it."""
    return min(episode.received_at, now - policy.alerts.expire_after)


def _percent(alert: Alert, annotation: str) -> float | None:
    text = alert.annotations.get(annotation)
    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = float("nan")
    if not 1 <= value <= 100:
        raise _RejectedError(f"annotation {annotation}: expected a percentage between 1 and 100, got {text[:40]!r}")
    return value


def with_alerts(request: CycleRequest | None, actionable: list[ActionableEpisode]) -> CycleRequest | None:
    """The request merged with the nodes of alerts; None without either.

    Of two alerts for one resource of a node the one with the lower `high` wins.
    """
    if not actionable:
        return request
    overrides = [each.override for each in actionable if each.override is not None]
    marks = {(mark.node, mark.resource): mark for mark in sorted(overrides, key=lambda mark: -mark.high)}
    # not a scope for each node: each is asked about every node of the cluster
    nodes: dict[str, set[str]] = {}
    for each in actionable:
        nodes.setdefault(each.strategy, set()).add(each.node)
    alerted = CycleRequest(
        trigger=Trigger.ALERT,
        scopes=frozenset(RequestScope(strategy=name, nodes=frozenset(members)) for name, members in nodes.items()),
        thresholds=marks,
    )
    return alerted if request is None else request.merged(alerted)


def record_results(inbox: Inbox, actionable: Sequence[ActionableEpisode], report: CycleReport, *, now: float) -> None:
    """Record the cycle's result for each episode, and when to retry."""
    for each in actionable:
        reason, next_at = _episode_result(each, report, now)
        inbox.tried(each.episode, reason=reason, next_at=next_at)


def close_rejected(inbox: Inbox, rejected: Sequence[RejectedEpisode], *, now: float) -> None:
    """Close the final rejections; schedule a retry of the others."""
    for each in rejected:
        if each.final:
            inbox.close(each.episode, state=EpisodeState.REFUSED, reason=each.reason)
        else:
            inbox.tried(each.episode, reason=each.reason, next_at=now + 5 * RETRY_SECONDS)


_GONE = (Outcome.EVICTED, Outcome.UNKNOWN)


def _episode_result(actionable: ActionableEpisode, report: CycleReport, now: float) -> tuple[str, float]:
    """(result as text, time of the next retry in seconds since the epoch)"""
    node, strategy, override = actionable.node, actionable.strategy, actionable.override
    again = now + RETRY_SECONDS
    if report.stopped is not None:
        return report.stopped.message, again
    here = [finding for finding, name in report.findings if (name, finding.strategy) == (node, strategy)]
    if override is not None:
        here = [each for each in here if override.resource in (each.resource, *(one.resource for one in each.others))]
    of_node = [each for each in report.refusals if each.node == node]
    if not here:
        skipped = next((each for each in of_node if not each.name), None)
        return skipped.message if skipped is not None else _nothing_found(actionable, report), again
    # one finding relieves its node of several resources, and its evictions are recorded with the first
    resources = ("", *(each.resource for each in here))
    mine = [
        each
        for each in report.evictions
        if (each.node, each.strategy) == (node, strategy) and (override is None or each.resource in resources)
    ]
    if went := sum(not each.reserved.dry_run and each.answered.outcome in _GONE for each in mine):
        return f"{went} evicted", again
    proposed = {move.uid for each in report.proposals for move in each.plan.evictions}
    if waiting := sum(each.uid in proposed for each in mine):
        return f"{waiting} proposed, to be approved", again
    if planned := sum(each.reserved.dry_run and each.answered.outcome is Outcome.PLANNED for each in mine):
        return f"{planned} would be evicted (dry run)", again
    return _blocked("hot" if override is not None else f"found by {strategy}", of_node), _retry_at(of_node, now)


def _nothing_found(actionable: ActionableEpisode, report: CycleReport) -> str:
    override = actionable.override
    if override is None:
        return f"{actionable.strategy} found nothing on the node: nothing is evicted"
    line = next((each for each in report.nodes if each.name == override.node), None)
    share = None if line is None else line.before(override.resource)
    what = "" if override.resource == CPU else f"{override.resource} "
    measured = "not known" if share is None else f"{percent(share)}"
    return f"measured {what}{measured}, not above the alert's {percent(override.high)}: nothing is evicted"


def _blocked(found: str, refusals: Sequence[PodRefusal]) -> str:
    counts: dict[str, int] = {}
    for each in refusals:
        counts[str(each.code)] = counts.get(str(each.code), 0) + 1
    codes = ", ".join(f"{code} {count}" for code, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return f"{found}, but nothing may be evicted{f': {codes}' if codes else ''}"


def _retry_at(refusals: Sequence[PodRefusal], now: float) -> float:
    """When the first of the time-limited refusals ends."""
    known = [each.next_at for each in refusals if each.next_at is not None and each.next_at > now]
    if not known:
        return now + RETRY_SECONDS
    return min(max(min(known), now + 1.0), now + MAX_RETRY_SECONDS)
