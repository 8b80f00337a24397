"""Worlds for one command: to look at, or to act in."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from rebalancer.bootstrap.adapters import client_of, make_context, records_of
from rebalancer.bootstrap.history import history_keeper
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import CycleContext, NullRecords, SystemClock
from rebalancer.cycle.steering import SoftTaintController
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.kube.leader.lease import LeaseLock
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.ports import Clock, Progress
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies import ServiceSpread
from rebalancer.store import database_exists as exists
from rebalancer.store import upgrade


@contextmanager
def planning_context(
    policy: RebalancerPolicy, settings: Settings, *, progress: Progress, clock: Clock | None = None
) -> Iterator[CycleContext]:
    """A world to look at: it reads the ledger, writes nothing and can't evict (but may probe with a server dry run)."""
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        records = stack.enter_context(records_of(settings, policy, clock)) if exists(settings.database) else None
        context = make_context(
            policy, settings, client, clock, progress, stack, records=NullRecords(records), lease=None
        )
        ledger = records.ledger(clock=ledger_clock) if records is not None else None
        yield _with_kept_history(replace(context, ledger=ledger), policy, settings, stack)


@contextmanager
def acting_context(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    dry_run: bool = False,
    steer: bool = True,
) -> Iterator[CycleContext]:
    """A world to act in: records are written; unless it's a dry run the cluster's Lease is held for the whole time.

    Without `steer` no node is tainted, nor cordoned to be drained, only cleared of what an earlier process left: for
    those who don't stay until the replacements have landed. Cordons for maintenance are as ever.

    A new SQLite file gets its tables; any other database must have been upgraded. What an earlier process left
    without an outcome is settled first. Raises UnsafeDataError when somebody else holds the Lease.
    """
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        if settings.database.startswith("sqlite") and not exists(settings.database):
            upgrade(settings.database)
        records = stack.enter_context(records_of(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)  # None: the database's own clock, which all clusters share
        if dry_run:
            context = make_context(
                policy, settings, client, clock, progress, stack, records=records, lease=None, steer=steer
            )
            yield _with_kept_history(replace(context, ledger=ledger), policy, settings, stack)
            return
        namespace, name = settings.lease_at
        lease = LeaseLock(
            client=client,
            namespace=namespace,
            name=name,
            identity=f"{settings.pod_name or socket.gethostname()}_{os.getpid()}",
            ledger_identity=records.ledger_identity(),
            last_term=ledger.last_term(),
        )
        stack.enter_context(lease)
        context = make_context(
            policy, settings, client, clock, progress, stack, records=records, lease=lease, steer=steer
        )
        stack.callback(_clear, context.soft_taint_controller, lease)
        if lease.term is not None:
            ledger.fence(lease.term)  # from here on no older leader can reserve
        yield _with_kept_history(replace(context, ledger=ledger), policy, settings, stack)


def read_cluster(settings: Settings, *, progress: Progress) -> ClusterSnapshot:
    """The cluster alone, without usage or database. Raises ConfigError, ConnectError, UnsafeDataError."""
    with ExitStack() as stack:
        client = client_of(settings, stack)
        return KubeCluster(client=client, clock=SystemClock(), progress=progress).snapshot()


def _with_kept_history(
    context: CycleContext, policy: RebalancerPolicy, settings: Settings, stack: ExitStack
) -> CycleContext:
    """A command asks for no history: it goes by what the daemon, or `rebalancer forecast`, has kept here."""
    by_days = policy.forecast.mode != "Off" and any(isinstance(each, ServiceSpread) for each in policy.strategies)
    if not (policy.forecast.mode == "Act" or by_days) or not Path(settings.history_dir, policy.cluster).is_dir():
        return context
    keeper = stack.enter_context(history_keeper(policy, settings, progress=context.progress, clock=context.clock))
    forecast_loop = ForecastLoop(
        policy=policy, keeper=keeper, clock=context.clock, ledger=context.ledger, own_pod=context.own_pod, asks=False
    )
    return replace(context, peaks=forecast_loop.peaks, service_day_profiles=forecast_loop.service_day_profiles)


def _clear(soft_taint_controller: SoftTaintController, lease: LeaseLock) -> None:
    """Leave no taint behind. Without the Lease they are the next leader's business."""
    if lease.holds():
        soft_taint_controller.clear()
