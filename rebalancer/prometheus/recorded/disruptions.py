"""Budgets, alerts and rebalancer's own evictions of a recording."""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.snapshot import DisruptionBudget
from rebalancer.model.measured.history import STEP_SECONDS, Grid
from rebalancer.model.notation.figures import counted
from rebalancer.model.recordings.recording import Gap, RecordedAlert, RecordedBudget, RecordedTaint
from rebalancer.prometheus.recorded.kube_state import MINUTE, Labels
from rebalancer.prometheus.recorded.nodes import RecordedNodes
from rebalancer.prometheus.recorded.pods import RecordedPodTable
from rebalancer.prometheus.recorded.windows import spans

_NOT_REPLACED = ("DaemonSet", "Job", "Node")
"""Owners that make no other pod elsewhere."""
_CYCLE_SECONDS = 600.0
"""The counter rises at the end of a cycle: so long after its first eviction at most."""
_LATE_SECONDS = 120.0
"""A replacement is created so long before the end of its pod's grace period, or after it."""
_ORDERED_SECONDS = 300.0
"""A StatefulSet makes the replacement when the pod is gone."""
_FREQUENT = 10


class Rise(NamedTuple):
    """The counter of evictions rose between two samples."""

    after: float
    until: float
    by: int
    pool: str


class Replacement(NamedTuple):
    """A pod that ended while its node stayed, and the pod of the same owner that was made at that time."""

    at: float
    pod: int
    by: int


def recorded_budgets(
    healthy: Mapping[tuple[str, str], Grid], today: Sequence[DisruptionBudget], *, start: float, steps: int
) -> tuple[tuple[RecordedBudget, ...], tuple[Gap, ...]]:
    """`healthy` has (steps,) of each by namespace and name, NaN while it wasn't there; selectors are today's."""
    known = {(each.namespace, each.name): each for each in today}
    out, gone = [], 0
    for (namespace, name), row in sorted(healthy.items()):
        there = np.flatnonzero(np.isfinite(row))
        if not len(there):
            continue
        first, last = int(there[0]), int(there[-1])
        budget = known.get((namespace, name))
        gone += budget is None
        # between samples it is as it was before
        at = np.maximum.accumulate(np.where(np.isfinite(row), np.arange(steps), first))
        out.append(
            RecordedBudget(
                namespace=namespace,
                name=name,
                selector=None if budget is None else budget.selector,
                desired_healthy=row[at].astype(np.int32),
                since=-np.inf if first == 0 else start + first * STEP_SECONDS,
                until=np.inf if last == steps - 1 else start + (last + 1) * STEP_SECONDS,
                evicts_unhealthy=budget is not None and budget.evicts_unhealthy,
            )
        )
    gaps = []
    if gone:
        gaps.append(Gap(f"{counted(gone, 'budget')} gone today: without a selector no pods are selected", 0))
    if not out and today:
        gaps.append(Gap("no kube_poddisruptionbudget_status_desired_healthy: budgets are those of today", 0))
        out = [
            RecordedBudget(
                namespace=each.namespace,
                name=each.name,
                selector=each.selector,
                desired_healthy=np.full(steps, each.desired_healthy, dtype=np.int32),
                evicts_unhealthy=each.evicts_unhealthy,
            )
            for each in today
        ]
    return tuple(out), tuple(gaps)


def recorded_alerts(series: Sequence[tuple[Labels, Grid]], *, start: float) -> tuple[RecordedAlert, ...]:
    """`series` has (minutes,) of each alert, NaN while it didn't fire."""
    out = []
    for labels, row in series:
        own = {name: value for name, value in labels.items() if name not in ("__name__", "alertstate")}
        out += [RecordedAlert(at, until, own, {}) for at, until in _spans(row, start)]
    return tuple(sorted(out, key=lambda each: (each.at, sorted(each.labels.items()))))


def alert_gaps(alerts: Sequence[RecordedAlert]) -> list[Gap]:
    """What Prometheus doesn't say of alerts that fired."""
    if not alerts:
        return []
    text = "alerts in Prometheus have no annotations: thresholds that annotations set are those of the rule or the pool"
    return [Gap(text, 0)]


def recorded_taints(
    series: Sequence[tuple[Labels, Grid]], nodes: Sequence[str], *, start: float
) -> tuple[RecordedTaint, ...]:
    """`series` has (minutes,) of the soft taint of each node, NaN while it hadn't it."""
    index = {name: at for at, name in enumerate(nodes)}
    out = [
        RecordedTaint(node, at, until)
        for labels, row in series
        if (node := index.get(labels.get("node", ""))) is not None
        for at, until in _spans(row, start)
    ]
    return tuple(sorted(out, key=lambda each: (each.since, each.node)))


def _spans(row: Grid, start: float) -> list[tuple[float, float]]:
    """Spans of time in which a series was there; `row` has its minutes."""
    return [(start + begin * MINUTE, start + end * MINUTE) for begin, end in spans(np.isfinite(row))]


def rises(series: Sequence[tuple[Labels, Grid]], *, start: float) -> list[Rise]:
    """When counters rose, by how much; `series` has (minutes,) of each. A counter begins again at zero with each
    process."""
    out = []
    for labels, row in series:
        known = np.flatnonzero(np.isfinite(row))
        if not len(known):
            continue
        values = row[known].astype(np.int64)
        before = np.concatenate(([values[0] if known[0] == 0 else 0], values[:-1]))
        last = np.concatenate(([max(known[0] - 1, 0)], known[:-1]))
        by = np.where(values >= before, values - before, values)
        out += [
            Rise(
                start + (last[at] + 0.5) * MINUTE,
                start + (known[at] + 0.5) * MINUTE,
                int(by[at]),
                labels.get("pool", ""),
            )
            for at in np.flatnonzero(by > 0).tolist()
        ]
    return sorted(out)


def replacements(table: RecordedPodTable, nodes: RecordedNodes, *, start: float) -> list[Replacement]:
    """Every pod of a controller that ended while its node stayed up and schedulable, with the pod of the same owner
    that was made nearest to that time; by time."""
    pods, steps = table.pods, nodes.ready.shape[1]
    moving = np.array([each.kind not in _NOT_REPLACED for each in table.owners] + [False], dtype=np.bool_)[pods.owner]
    ends = np.where(np.isfinite(pods.ended), pods.ended, 0.0)
    step = np.clip((ends - start) // STEP_SECONDS, 0, steps - 1).astype(np.int64)
    node = np.maximum(pods.node, 0)
    stayed = nodes.ready[node, step] & ~nodes.unschedulable[node, step] & (nodes.left[node] > ends + _LATE_SECONDS)
    ended = np.flatnonzero(moving & np.isfinite(pods.ended) & (pods.node >= 0) & stayed)
    owners = set(pods.owner[ended].tolist())
    made: dict[int, list[tuple[float, int]]] = {owner: [] for owner in owners}
    for at in np.flatnonzero(moving).tolist():  # in the order of their creation
        if (owner := int(pods.owner[at])) in owners:
            made[owner].append((float(pods.created[at]), at))
    out, taken = [], set[int]()
    for pod in ended[np.argsort(pods.ended[ended], kind="stable")].tolist():
        end, grace = float(pods.ended[pod]), table.pod_templates[int(pods.template[pod])].grace_seconds
        others = made[int(pods.owner[pod])]
        first = bisect_left(others, (end - grace - _LATE_SECONDS, -1))
        near = [
            (created, by)
            for created, by in others[first : bisect_left(others, (end + _ORDERED_SECONDS, -1))]
            if by not in taken and by != pod and created > pods.created[pod]
        ]
        if near:
            # with its deletion, or when it is gone
            created, by = min(near, key=lambda each: min(abs(each[0] - end), abs(each[0] - (end - grace))))
            taken.add(by)
            out.append(Replacement(min(created, end), pod, by))
    return sorted(out)


def attributed(
    found: Sequence[Replacement], rose: Sequence[Rise], pools: Sequence[str], *, evicted: Collection[int] = ()
) -> list[Replacement]:
    """Replacements after evictions by rebalancer: those of the pods `evicted` by its database, and at each rise of the
    counter as many as it rose by, in its pool: those of the database first, then those nearest before it.

    `pools` has the pool of each of `found`.
    """
    times = [each.at for each in found]
    known, left = set(pools), set(range(len(found)))
    out = []
    for rise in rose:
        first = bisect_left(times, rise.after - _CYCLE_SECONDS)
        last = bisect_left(times, rise.until + MINUTE / 2)
        near = [at for at in range(first, last) if at in left and (pools[at] == rise.pool or rise.pool not in known)]
        near.sort(  # an eviction that the database and the counter have is one
            key=lambda at, rise=rise: (found[at].pod not in evicted, max(rise.after - times[at], 0.0))  # type: ignore[misc]
        )
        for at in near[: rise.by]:
            left.discard(at)
            out.append(found[at])
    return out + [found[at] for at in sorted(left) if found[at].pod in evicted]


def eviction_gaps(found: Sequence[Replacement], rose: Sequence[Rise], evicted: int, *, has_counter: bool) -> list[Gap]:
    """`has_counter`: evictions are known by the counter or by the database."""
    total = sum(each.by for each in rose)
    if total > evicted:
        of = counted(total, "eviction")
        return [Gap(f"{total - evicted} of {of} by rebalancer: no pod that ended at that time fits", 0)]
    if not has_counter and len(found) >= _FREQUENT:
        text = (
            "no rebalancer_evictions_total and no database: pods replaced while their node stayed don't count as "
            "evicted by rebalancer"
        )
        return [Gap(text, len(found))]
    return []
