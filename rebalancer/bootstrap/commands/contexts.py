"""The context of one command: to plan, or to evict."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import (
    lease_lock,
    make_context,
    process_identity,
    slo_reader_of,
    usage_of,
    without_stabilization,
)
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.bootstrap.wiring.database import create_database, records_of
from rebalancer.cycle.context import CycleContext, ForecastReaders, NullRecords
from rebalancer.cycle.evict.calls import MAX_CALLS
from rebalancer.kube.actions.events import KubeEvents
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, EventSink, Progress
from rebalancer.model.notation.figures import age
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.store import SqlRecords, database_exists
from rebalancer.strategies import needs

if TYPE_CHECKING:
    from rebalancer.bootstrap.wiring.active import Active
    from rebalancer.forecasting.loop import ForecastLoop


@contextmanager
def planning_context(
    policy: RebalancerPolicy, settings: Settings, *, progress: Progress, clock: Clock | None = None, taints: bool = True
) -> Iterator[CycleContext]:
    """A context that reads the ledger, writes nothing and evicts nothing (a probe with a server dry run apart).

    Its plan is that of an `acting_context` with the same `taints`.
    """
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        found = database_exists(settings.database)
        records = stack.enter_context(records_of(settings, policy, clock)) if found else None
        ledger = records.ledger(clock=ledger_clock) if records is not None else None
        context = make_context(
            policy, settings, client, clock, progress, stack, records=NullRecords(records), ledger=ledger, taints=taints
        )
        context = _with_kept_history(context, policy, settings, stack, records)
        yield context if records is None else _with_feedback(context, policy, records)


@contextmanager
def acting_context(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    dry_run: bool = False,
    taints: bool = True,
) -> Iterator[CycleContext]:
    """The context of `evaluated_context`, for cycles alone."""
    with evaluated_context(policy, settings, progress=progress, clock=clock, dry_run=dry_run, taints=taints) as active:
        yield active.context


@contextmanager
def evaluated_context(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    dry_run: bool = False,
    taints: bool = True,
) -> "Iterator[Active]":
    """A context that writes records, with its evaluation loop; unless it's a dry run the cluster's Lease is held for
    the whole time.

    Without `taints` no node is tainted, nor cordoned to be drained; those of earlier processes are removed: for a
    process that ends before the replacements have landed. Cordons for maintenance are set as ever.

    A new SQLite file gets its tables; any other database must have been upgraded. Evictions that an earlier process
    left without an outcome are reconciled first. Raises UnsafeDataError when another process holds the Lease.
    """
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        create_database(settings)
        records = stack.enter_context(records_of(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)  # None: the database's own clock, which all clusters share
        lease = None if dry_run else stack.enter_context(lease_lock(settings, client, policy, records, ledger))
        context = make_context(
            policy,
            settings,
            client,
            clock,
            progress,
            stack,
            records=records,
            ledger=ledger,
            proposals=records.proposals(clock=ledger_clock),
            surges=records.surges(clock=ledger_clock),
            lease=lease,
            taints=taints,
            # in a simulation the order of the calls is part of the result
            max_calls=MAX_CALLS if ledger_clock is None else 1,
        )
        if lease is not None:
            # without the Lease the taints are removed by the next leader
            stack.callback(lambda: context.soft_taint_controller.clear() if lease.holds() else None)
            if lease.term is not None:
                ledger.fence(lease.term)  # from here on no older leader can reserve
        context = _with_kept_history(context, policy, settings, stack, records)
        yield _evaluated(context, policy, client, stack, records)


def _evaluated(
    context: CycleContext, policy: RebalancerPolicy, client: ApiClient, stack: ExitStack, records: SqlRecords
) -> "Active":
    """The context with its evaluation loop, as the daemon has it. Without the Lease nothing is assessed."""
    from rebalancer.bootstrap.wiring.active import active_of

    active = active_of(
        policy,
        context,
        records,
        keepers=None,
        usage=usage_of(without_stabilization(policy), client, context.clock, context.progress, stack),
        standard=slo_reader_of(policy, stack),
        quiet=True,
    )
    if context.lease is None:
        return replace(active, context=_with_feedback(context, policy, records), evaluation=None)
    return active


def _with_feedback(context: CycleContext, policy: RebalancerPolicy, records: SqlRecords) -> CycleContext:
    """The context with the feedback of the assessments that have been made."""
    from rebalancer.evaluation.assessments import derive_feedback

    effect, clock = records.effect(), context.clock
    return replace(context, feedback=lambda: derive_feedback(effect, policy, now=clock.now()))


@contextmanager
def event_sink(settings: Settings, clock: Clock) -> Iterator[EventSink]:
    """Events about what a command does. Raises ConfigError."""
    with ExitStack() as stack:
        yield KubeEvents(client=client_of(settings, stack), clock=clock, instance=process_identity(settings))


def read_cluster(settings: Settings, *, progress: Progress) -> ClusterSnapshot:
    """The cluster alone, without usage or database. Raises ConfigError, ConnectError, UnsafeDataError."""
    with ExitStack() as stack:
        client = client_of(settings, stack)
        return KubeCluster(client=client, clock=SystemClock(), progress=progress).snapshot()


def _with_kept_history(
    context: CycleContext,
    policy: RebalancerPolicy,
    settings: Settings,
    stack: ExitStack,
    records: SqlRecords | None,
) -> CycleContext:
    """A command reads no history from Prometheus: it uses what the daemon or `rebalancer forecast` has stored here,
    and the outcomes that the daemon has judged. A note of the cycle says which, since the plan depends on it."""
    mode, folder = policy.forecast.mode, Path(settings.history_dir, policy.cluster).absolute()
    used = mode == "Act" or (mode != "Off" and Need.DAYS in needs(policy.strategies))
    if not used:
        return context
    if not folder.is_dir():
        none = f"planned without a forecast: no usage history in {folder} (`rebalancer forecast` fills it)"
        return replace(context, forecasts=ForecastReaders(basis=lambda _now: none))
    from rebalancer.bootstrap.wiring.active import acting_on
    from rebalancer.bootstrap.wiring.history import history_keepers
    from rebalancer.forecasting.loop import ForecastLoop
    from rebalancer.forecasting.outcomes import OutcomeKeeper

    keepers = stack.enter_context(history_keepers(policy, settings, progress=context.progress, clock=context.clock))
    forecast_loop = ForecastLoop(
        policy=policy,
        keepers=keepers,
        clock=context.clock,
        ledger=context.ledger,
        outcomes=OutcomeKeeper(records=records.outcomes()) if records is not None else None,
        own_pod=context.own_pod,
        reads_history=False,
    )
    context = replace(context, forecasts=ForecastReaders(basis=lambda now: _basis(forecast_loop, folder, now)))
    return acting_on(context, forecast_loop)


def _basis(forecast_loop: "ForecastLoop", folder: Path, now: float) -> str:
    last = forecast_loop.last
    if last is None:
        return ""
    if math.isinf(last.known_until):
        return f"planned without a forecast: the usage history in {folder} is empty (`rebalancer forecast` fills it)"
    ends = f"the usage history in {folder} ends {age((now - last.known_until) // 60 * 60)} ago"
    if forecast_loop.stale(now):
        return f"planned without a forecast: {ends} (`rebalancer forecast` adds the rest)"
    return f"planned with a forecast: {ends}"
