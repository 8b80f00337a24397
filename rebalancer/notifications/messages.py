"""Notifications of cycles, proposals, assessments and circuit breakers. Pure: records in, notifications out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rebalancer.model.decisions.approval_links import ACTIONS, ApprovalLinks
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.eviction import Outcome as Answer
from rebalancer.model.decisions.next_hour import NEXT_HOUR, heat_of_next_hour, others_sentence
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.notation.figures import clock_time, counted, percent
from rebalancer.model.notation.heat import heat_sentence
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Assessment, Outcome, Step
from rebalancer.model.records.notifications import Event, Notification

SHOWN = 10
"""Most nodes, and most pods of a node, in one message."""
EVICTIONS_FIRE_SECONDS = 300.0
NOT_EFFECTIVE_FIRES_SECONDS = 3600.0
BREAKER_FIRES_SECONDS = 900.0
"""An alert of an open circuit breaker is sent again before this time has passed."""


def evictions(report: CycleReport) -> list[Notification]:
    """One notification for the evictions of a cycle; none for a dry run or without evictions."""
    made: dict[str, list[Eviction]] = defaultdict(list)
    for each in report.evictions:
        if each.answered.outcome is Answer.EVICTED:
            made[each.node].append(each)
    if report.dry_run or not made:
        return []
    lines = {line.name: line for line in report.nodes}
    text = []
    for node, moved in list(made.items())[:SHOWN]:
        line = lines.get(node)
        change = ""
        if line is not None and line.cpu_before is not None and line.cpu_planned is not None:
            change = f" ({percent(line.cpu_before)} -> {percent(line.cpu_planned)} planned)"
        text.append(f"{node}{change}: {_some([f'{each.namespace}/{each.pod}' for each in moved])}")
    if len(made) > SHOWN:
        text.append(f"and {len(made) - SHOWN} more nodes")
    heat, others = heat_of_next_hour(report), others_sentence(report)
    text += [others] if others else []
    text += [heat_sentence(heat, of=NEXT_HOUR)] if heat.before or heat.evictions else []
    count = sum(map(len, made.values()))
    at = report.finished_at or report.started_at
    return [
        Notification(
            event=Event.EVICTIONS,
            cluster=report.cluster,
            title=f"{report.cluster}: {counted(count, 'pod')} evicted from {counted(len(made), 'node')}",
            text="\n".join(text),
            at=at,
            labels={"trigger": str(report.trigger)},
            ends_at=at + EVICTIONS_FIRE_SECONDS,
        )
    ]


def proposals(report: CycleReport, links: ApprovalLinks | None) -> list[Notification]:
    """One notification for each proposal that is new in a cycle, with links where there are any."""
    out = []
    for each in report.proposals:
        if each.cycle != report.id:
            continue
        how = [f"rebalancer approve {each.id}"]
        if links is not None and links.base:
            how = [f"{action}: {links.url(each, action)}" for action in ACTIONS]
        moves: dict[str, list[str]] = defaultdict(list)
        for move in each.plan.evictions:
            moves[move.node].append(move.full_name)
        nodes = [f"{node}: {_some(pods)}" for node, pods in list(moves.items())[:SHOWN]]
        more = [f"and {len(moves) - SHOWN} more nodes"] if len(moves) > SHOWN else []
        out.append(
            Notification(
                event=Event.PROPOSAL,
                cluster=report.cluster,
                title=f"{report.cluster}: proposal {each.id}: {each.summary}",
                # the links first: a long text is cut at its end
                text="\n".join([f"until {clock_time(each.expires_at)}", *how, *nodes, *more]),
                at=each.proposed_at,
                labels={"proposal": each.id, "pool": each.plan.pool},
                ends_at=each.expires_at,
            )
        )
    return out


def not_effective(cluster: str, assessments: Sequence[Assessment]) -> list[Notification]:
    """One notification for each node that its evictions did not cool, after the settling time.

    Late assessments, and those of which the usage isn't known, are left out.
    """
    return [
        Notification(
            event=Event.NOT_EFFECTIVE,
            cluster=cluster,
            title=f"{cluster}: node {each.node} was not cooled by its evictions: {_share(each)}",
            text=each.detail,
            at=each.assessed_at or each.due_at,
            labels={"node": each.node, "pool": each.pool, "resource": each.resource},
            ends_at=(each.assessed_at or each.due_at) + NOT_EFFECTIVE_FIRES_SECONDS,
        )
        for each in assessments
        if each.step is Step.SETTLED
        and not each.late
        and each.before_share > each.high
        and each.outcome not in (None, Outcome.COOLED, Outcome.UNKNOWN)
    ]


def circuit_breakers(
    cluster: str, before: Mapping[str, str], now_open: Mapping[str, str], *, now: float
) -> list[Notification]:
    """Changes of open circuit breakers (scope -> reason) since the last look. One that is still open is repeated."""
    out = [
        _breaker(cluster, scope, f"{cluster}: circuit breaker of {scope} open", reason, now, scope in before)
        for scope, reason in now_open.items()
    ]
    for scope in before.keys() - now_open.keys():
        title = f"{cluster}: circuit breaker of {scope} closed"
        out.append(_breaker(cluster, scope, title, "", now, False, ended=True))
    return out


def _breaker(
    cluster: str, scope: str, title: str, reason: str, now: float, repeated: bool, *, ended: bool = False
) -> Notification:
    return Notification(
        event=Event.CIRCUIT_BREAKER,
        cluster=cluster,
        title=title,
        text=reason,
        at=now,
        labels={"scope": scope},
        ends_at=now if ended else now + BREAKER_FIRES_SECONDS,
        repeated=repeated,
    )


def _share(assessment: Assessment) -> str:
    after = "unknown" if assessment.after_share is None else percent(assessment.after_share)
    resource = "" if assessment.resource == CPU else f" of {assessment.resource}"
    return f"{after}{resource}, target {percent(assessment.target)}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
