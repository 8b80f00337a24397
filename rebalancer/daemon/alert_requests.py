"""Alerts that are open: which node each one means, what it calls hot there, and what came of it.

One episode for each fingerprint and start. It stays open until Alertmanager resolves it or it expires: what a limit or
window refuses now is tried again when that may have changed. Where measurement and alert disagree, that is written
down and nothing moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.model.alerts import Alert, AlertEpisode, EpisodeState, ThresholdOverride
from rebalancer.model.eviction import Outcome
from rebalancer.model.plan import CycleReport, PodRefusal
from rebalancer.model.ports import Inbox
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy

RECHECK_SECONDS = 60.0
"""When nothing says when it may have changed."""

LONGEST_WAIT_SECONDS = 900.0
"""A window may open in hours, but the node may have cooled, or other pods come, long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionableEpisode:
    """An episode that can be acted on."""

    episode: AlertEpisode
    marks: ThresholdOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedEpisode:
    """An episode that says too little."""

    episode: AlertEpisode
    reason: str
    final: bool
    """Time won't change it."""


def resolve_episode(
    episode: AlertEpisode, snapshot: ClusterSnapshot, policy: RebalancerPolicy, pool_of_node: Mapping[str, str]
) -> ActionableEpisode | RejectedEpisode:
    """Which node it means, and at which marks."""
    alert = episode.alert
    rule = policy.alerts.rule_for(alert)
    if rule is None:
        return RejectedEpisode(episode=episode, reason=f"the policy has no rule for {alert.name} any more", final=True)
    named = [value for label in policy.alerts.node_labels if (value := alert.labels.get(label))]
    if not named:
        labels = ", ".join(policy.alerts.node_labels)
        return RejectedEpisode(episode=episode, reason=f"the alert names no node: expected one of {labels}", final=True)
    node = next((found for value in named if (found := _node(value, snapshot)) is not None), None)
    if node is None:
        return RejectedEpisode(episode=episode, reason=f"no node of this cluster is {' or '.join(named)}", final=False)
    pool = next((each for each in policy.pools if each.name == pool_of_node.get(node)), None)
    if pool is None:
        return RejectedEpisode(episode=episode, reason=f"{node} is in no pool of the policy", final=False)
    own = pool.thresholds
    try:
        high = _percent(alert, policy.alerts.high_annotation) or rule.high or (own.high if own else None)
        target = _percent(alert, policy.alerts.target_annotation) or rule.target
    except ValueError as error:
        return RejectedEpisode(episode=episode, reason=str(error), final=True)
    if high is None:
        return RejectedEpisode(episode=episode, reason="neither alert nor policy says what is hot", final=True)
    if high < policy.alerts.min_high:
        reason = f"its high of {high:g} % is under the policy's floor of {policy.alerts.min_high:g} %"
        return RejectedEpisode(episode=episode, reason=reason, final=True)
    if target is None:
        target = high - (own.high - own.target if own else 10.0)
    if not 0 < target < high:
        return RejectedEpisode(
            episode=episode, reason=f"expected target < high, got {target:g} and {high:g}", final=True
        )
    marks = ThresholdOverride(
        node=node, strategy=rule.strategy, high=high / 100, target=target / 100, source=f"alert {alert.name}"
    )
    return ActionableEpisode(episode=episode, marks=marks)


def _node(value: str, snapshot: ClusterSnapshot) -> str | None:
    for text in (value, value.rpartition(":")[0]):
        if text in snapshot.node_index:
            return text
        bare = text.strip("[]")
        if bare:
            for name, addresses in zip(snapshot.nodes.names, snapshot.nodes.addresses, strict=True):
                if bare in addresses:
                    return name
    return None


def _percent(alert: Alert, annotation: str) -> float | None:
    text = alert.annotations.get(annotation)
    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = float("nan")
    if not 1 <= value <= 100:
        raise ValueError(f"annotation {annotation}: expected a percentage between 1 and 100, got {text[:40]!r}")
    return value


def record_results(inbox: Inbox, actionable: Sequence[ActionableEpisode], report: CycleReport, *, now: float) -> None:
    """Write down what the cycle did about each episode, and when to look again."""
    for each in actionable:
        reason, next_at = _episode_result(each.marks, report, now)
        inbox.tried(each.episode, reason=reason, next_at=next_at)


def close_rejected(inbox: Inbox, rejected: Sequence[RejectedEpisode], *, now: float) -> None:
    """Close what time won't change; look again at the rest."""
    for each in rejected:
        if each.final:
            inbox.close(each.episode, state=EpisodeState.REFUSED, reason=each.reason)
        else:
            inbox.tried(each.episode, reason=each.reason, next_at=now + 5 * RECHECK_SECONDS)


def _episode_result(marks: ThresholdOverride, report: CycleReport, now: float) -> tuple[str, float]:
    """What to say, and when to look again (seconds since the epoch)."""
    again = now + RECHECK_SECONDS
    if report.stopped is not None:
        return report.stopped.message, again
    gone = (Outcome.PLANNED,) if report.dry_run else (Outcome.EVICTED, Outcome.UNKNOWN)
    went = [each for each in report.evictions if each.node == marks.node and each.outcome in gone]
    if went:
        return f"{len(went)} {'would be evicted: a dry run' if report.dry_run else 'evicted'}", again
    of_node = [each for each in report.refusals if each.node == marks.node]
    if all(node != marks.node for _, node in report.findings):
        skipped = next((each for each in of_node if not each.name), None)
        if skipped is not None:
            return skipped.message, again
        line = next((each for each in report.nodes if each.name == marks.node), None)
        measured = "not known" if line is None or line.cpu_before is None else f"{line.cpu_before:.1%}"
        return f"measured {measured}, not over the alert's {marks.high:.1%}: nothing moves", again
    return _why_nothing(of_node), _when(of_node, now)


def _why_nothing(refusals: Sequence[PodRefusal]) -> str:
    counts: dict[str, int] = {}
    for each in refusals:
        counts[str(each.code)] = counts.get(str(each.code), 0) + 1
    told = ", ".join(f"{code} {count}" for code, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return f"hot, but nothing may move: {told}" if told else "hot, but nothing may move"


def _when(refusals: Sequence[PodRefusal], now: float) -> float:
    """The next possible time: when the first of the refusals that time lifts is lifted."""
    known = [each.next_at for each in refusals if each.next_at is not None and each.next_at > now]
    if not known:
        return now + RECHECK_SECONDS
    return min(max(min(known), now + 1.0), now + LONGEST_WAIT_SECONDS)
