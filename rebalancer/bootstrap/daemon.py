"""What the daemon is made of: parts for its whole life, and those that each policy needs."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from rebalancer.bootstrap.active import Active
from rebalancer.bootstrap.adapters import (
    client_of,
    make_context,
    records_of,
    slo_reader_of,
    usage_of,
    without_stabilization,
)
from rebalancer.bootstrap.history import history_keeper
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import NullProgress, SystemClock
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.kube.actions.events import KubeEvents
from rebalancer.kube.leader.leadership import Leadership
from rebalancer.kube.leader.lease import LeaseLock, Sighting
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.model.errors import RebalancerError
from rebalancer.model.ports import Clock
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import SqlEffect, SqlForecasts, SqlInbox, SqlLedger, SqlReading, upgrade
from rebalancer.store import database_exists as exists


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonResources:
    """What the daemon keeps for its whole life, whatever the policy says."""

    cluster: WatchedCluster
    ledger: SqlLedger
    inbox: SqlInbox
    archive: SqlReading
    effect: SqlEffect
    forecasts: SqlForecasts
    events: KubeEvents
    leadership: Leadership
    context: Callable[[RebalancerPolicy, Clock, Callable[[], bool]], Active]
    """Builds what a policy needs; long reads end when the last argument returns true."""
    database_problem: Callable[[], str]
    """Why the database can't be used; empty when it can."""


@contextmanager
def open_daemon_resources(
    policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None
) -> Iterator[DaemonResources]:
    """Connections for the daemon. A new SQLite file gets its tables. Raises ConfigError, ConnectError."""
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        watching = client_of(settings, stack)  # long streams and short calls don't share connections
        if settings.database.startswith("sqlite") and not exists(settings.database):
            upgrade(settings.database)
        records = stack.enter_context(records_of(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)
        cluster = WatchedCluster(client=watching, clock=clock)
        namespace, name = settings.lease_at
        observed = Sighting()

        def make_lock() -> LeaseLock:
            return LeaseLock(
                client=client,
                namespace=namespace,
                name=name,
                identity=f"{settings.pod_name or socket.gethostname()}_{os.getpid()}",
                ledger_identity=records.ledger_identity(),
                last_term=ledger.last_term(),
                sighting=observed,
            )

        leadership = Leadership(make_lock=make_lock, fence=ledger.fence)

        def context(policy: RebalancerPolicy, clock: Clock, stop_asked: Callable[[], bool]) -> Active:
            own = ExitStack()  # what this policy alone needs; closed when another has replaced it, or with the rest
            stack.callback(own.close)
            made = make_context(policy, settings, client, clock, NullProgress(), own, records=records, lease=leadership)
            evaluation = EvaluationLoop(
                policy=policy,
                cluster=cluster,
                usage=usage_of(without_stabilization(policy), client, clock, NullProgress(), own),
                effect=records.effect(),
                forecasts=records.forecasts(),
                ledger=ledger,
                standard=slo_reader_of(policy, own),
                clock=clock,
                stopping=lambda: stop_asked() or not leadership.holds(),
            )
            made = replace(
                made,
                cluster=cluster,
                ledger=ledger,
                effect=records.effect(),
                feedback=lambda: evaluation.feedback,
            )
            undamped_usage = usage_of(without_stabilization(policy), client, clock, NullProgress(), own)
            if policy.forecast.mode == "Off":
                return Active(
                    policy=policy,
                    context=made,
                    forecast_loop=None,
                    undamped_usage=undamped_usage,
                    evaluation=evaluation,
                    close=own.close,
                )
            forecast_loop = ForecastLoop(
                policy=policy,
                keeper=own.enter_context(
                    history_keeper(
                        policy,
                        settings,
                        progress=NullProgress(),
                        clock=clock,
                        stopping=lambda: stop_asked() or not leadership.holds(),
                    )
                ),
                clock=clock,
                ledger=ledger,
                records=records.forecasts(),
                own_pod=settings.own_pod,
            )
            made = replace(
                made,
                peaks=forecast_loop.peaks,
                service_day_profiles=forecast_loop.service_day_profiles,
                record_usage=forecast_loop.record_usage,
            )
            return Active(
                policy=policy,
                context=made,
                forecast_loop=forecast_loop,
                undamped_usage=undamped_usage,
                evaluation=evaluation,
                close=own.close,
            )

        def database_problem() -> str:
            try:
                ledger.now()
            except RebalancerError as error:
                return str(error)
            return ""

        yield DaemonResources(
            cluster=cluster,
            ledger=ledger,
            inbox=records.inbox(clock=ledger_clock),
            archive=records.reading(),
            effect=records.effect(),
            forecasts=records.forecasts(),
            events=KubeEvents(client=client, clock=clock, instance=settings.pod_name or socket.gethostname()),
            leadership=leadership,
            context=context,
            database_problem=database_problem,
        )
