"""A recording of the cluster from Prometheus: its objects by kube-state-metrics, its usage by day blocks."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rebalancer.bootstrap.commands.contexts import read_cluster
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.database import kept_records
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.forecasting.history import DAYS, HistoryKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.errors import ConfigError, RebalancerError, UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS, STEP_SECONDS, DayBlock, date_of, slot_of
from rebalancer.model.notation.figures import clock_time, counted
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.jobs import with_failure_policies
from rebalancer.model.recordings.recorded_usage import days_before, recorded_usage
from rebalancer.model.recordings.recording import Gap, RecordedUsage, Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.prometheus.promql.queries import NODE_CPU, POD_CPU, queries
from rebalancer.prometheus.recorded import RecordedState, recorded_state

_LAG_SECONDS = 60.0
"""A step is read so long after its end, as by the day blocks."""
_SHOWN_NOTES = 3


def read_recording(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    since_seconds: float,
    until: float | None = None,
    progress: Progress,
    stopping: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    today: ClusterSnapshot | None = None,
    earlier_days: int = DAYS,
) -> Recording:
    """The last `since_seconds` before `until` (now when absent), in whole steps.

    Days that the daemon has stored are not read again; the others are, and stored. `today` is read from the API server
    when it isn't given. `earlier_days`: how many days before the recording are read, for forecasts. Raises
    ConfigError, ConnectError, and UnsafeDataError without any CPU.
    """
    prometheus = policy.usage.prometheus
    if prometheus is None or policy.usage.source != "Prometheus":
        raise ConfigError("usage.source: expected Prometheus: metrics-server has no history to replay")
    clock = clock or SystemClock()
    end = min(clock.now() - _LAG_SECONDS, math.inf if until is None else until) // STEP_SECONDS * STEP_SECONDS
    start = (end - since_seconds) // STEP_SECONDS * STEP_SECONDS
    if start >= end:
        raise ConfigError("--since: expected at least 5m")
    if today is None:
        today = read_cluster(settings, progress=progress)
    evicted, unread = _evicted(policy, settings, start)
    state = recorded_state(
        prometheus,
        today,
        start=start,
        end=end,
        pools=lambda nodes: NodePools.of(policy.pools, nodes).names,
        evicted=evicted,
        progress=progress,
        stopping=stopping,
    )
    figures = _figures(
        policy,
        settings,
        state,
        today,
        earlier_days=earlier_days,
        clock=clock,
        progress=progress,
        stopping=stopping,
    )
    pods, nodes = state.pods, state.nodes
    return Recording(
        source=f"Prometheus at {figures.url}",
        cluster=policy.cluster,
        start=state.start,
        steps=state.steps,
        nodes=nodes.nodes,
        node_joined=nodes.joined,
        node_left=nodes.left,
        node_ready=nodes.ready,
        node_unschedulable=nodes.unschedulable,
        namespaces=pods.namespaces,
        owners=with_failure_policies(pods.owners, today),
        pod_templates=pods.pod_templates,
        pods=pods.pods,
        usage=figures.usage,
        today=today,
        budgets=state.budgets,
        before=figures.before,
        alerts=state.alerts,
        soft_taints=state.soft_taints,
        gaps=(*state.gaps, *unread, *figures.gaps),
    )


def _evicted(policy: RebalancerPolicy, settings: Settings, since: float) -> tuple[set[str], Sequence[Gap]]:
    """UIDs of the pods that were evicted since then, as far as the database has them, and what isn't known. The counter
    in Prometheus lacks evictions of `run --once`, which exports none."""
    try:
        with kept_records(policy, settings) as records:
            return (set() if records is None else {each.uid for each in records.ledger().evicted(since)}), ()
    except RebalancerError as error:
        return set(), [Gap(f"evictions are those of rebalancer_evictions_total alone: {error}", 0)]


class _Figures(NamedTuple):
    url: str
    usage: Mapping[str, RecordedUsage]
    before: Mapping[str, Sequence[DayBlock]]
    gaps: tuple[Gap, ...]


def _figures(
    policy: RebalancerPolicy,
    settings: Settings,
    state: RecordedState,
    today: ClusterSnapshot,
    *,
    earlier_days: int,
    clock: Clock,
    progress: Progress,
    stopping: Callable[[], bool],
) -> _Figures:
    """Usage of the recording, and the days before it, of each resource."""
    first = slot_of(state.start)[0]
    days = slot_of(clock.now() - _LAG_SECONDS)[0] - first + earlier_days
    names = [state.pods.namespaces[space] for space in state.pods.pods.namespace.tolist()]
    pods = [f"{space}/{name}" for space, name in zip(names, state.pods.pods.names, strict=True)]
    usage: dict[str, RecordedUsage] = {}
    before: dict[str, Sequence[DayBlock]] = {}
    gaps: list[Gap] = []
    snapshot = replace(today, nodes=state.nodes.nodes)
    with history_keepers(
        policy, settings, progress=progress, clock=clock, days=days, stopping=stopping, unlimited=True
    ) as keepers:
        for resource, keeper in keepers.items():
            history = keeper.update(snapshot)
            gaps += [Gap(f"{resource}: {note}", 0) for note in history.notes]
            gaps += _stored_without(keeper, state, settings)
            recorded = [block for block in history.days if block.day >= first]
            usage[resource] = recorded_usage(
                recorded,
                resource=resource,
                start=state.start,
                steps=state.steps,
                pods=pods,
                bound=state.pods.pods.bound,
                ended=state.pods.pods.ended,
                nodes=state.nodes.nodes.names,
                absent=state.nodes.absent,
            )
            if resource == CPU:
                _check(policy, usage[CPU], state, [note for day in recorded for note in day.notes] or history.notes)
            before[resource] = days_before(history.days, state.start, most=earlier_days)
    return _Figures(state.url, usage, before, tuple(gaps))


def _check(policy: RebalancerPolicy, cpu: RecordedUsage, state: RecordedState, notes: Sequence[str]) -> None:
    """Raises UnsafeDataError, with the queries that found nothing, where no CPU of nodes or of pods is known."""
    wanted = queries(policy.usage)
    missing = [
        (what, f"{query.field} ({metric})" if is_default else query.field)
        for what, values, query, is_default, metric in (
            ("nodes", cpu.node, wanted.node, wanted.node_is_default, NODE_CPU),
            ("pods", cpu.pod_values, wanted.pod, wanted.pod_is_default, POD_CPU),
        )
        if not np.isfinite(values).any()
    ]
    if missing:
        whose, checked = (" and ".join(each) for each in zip(*missing, strict=True))
        span = f"from {clock_time(state.start)} to {clock_time(state.end)}"
        why = f": {'; '.join(list(dict.fromkeys(notes))[:_SHOWN_NOTES])}" if notes else ""
        raise UnsafeDataError(f"no CPU of {whose} is known {span}; check {checked} at {state.url}{why}")


def _stored_without(keeper: HistoryKeeper, state: RecordedState, settings: Settings) -> Iterator[Gap]:
    """Nodes that a stored day lacks: it was read when they were gone."""
    nodes = state.nodes
    missing: set[str] = set()
    days = []
    for day in range(slot_of(state.start)[0], slot_of(state.end)[0] + 1):
        stored, begin = keeper.nodes_of(day), day * DAY_SECONDS
        if stored is None:
            continue
        there = (nodes.left > max(begin, state.start) + HOUR_SECONDS) & (nodes.joined < begin + DAY_SECONDS)
        there[: len(nodes.nodes) - nodes.gone] = False
        found = {nodes.nodes.names[at] for at in np.flatnonzero(there).tolist()}.difference(stored[0])
        missing |= found
        days += [date_of(day)] if found else []
    if missing:
        yield Gap(
            f"{keeper.resource}: no figures of {counted(len(missing), 'node')} gone today on {', '.join(days)}; days "
            f"that were stored after a node had left are read again without the files in {settings.history_dir}",
            0,
        )
