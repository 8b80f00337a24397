"""The adapters of the daemon: those for its whole life, and those of one policy."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy.ma  # noqa: F401 - numpy imports it at the first use of unique(), which fails without a free file descriptor

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.active import Active, active_of
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
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import NullProgress
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.kube.actions.events import KubeEvents
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.leader.leadership import Leadership
from rebalancer.kube.leader.lease import Sighting
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.model.decisions.ports import Clock, UsageReader
from rebalancer.model.errors import RebalancerError
from rebalancer.model.parts import FailedParts
from rebalancer.model.recordings.journal import Journal
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import (
    SqlEffect,
    SqlForecasts,
    SqlInbox,
    SqlLedger,
    SqlProposals,
    SqlReading,
    SqlRecords,
    SqlSurges,
)
from rebalancer.store.journal import DayJournal
from rebalancer.strategies import strategy_for


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonResources:
    """The adapters that the daemon keeps for its whole life, whatever the policy."""

    settings: Settings
    client: ApiClient
    cluster: WatchedCluster
    records: SqlRecords
    ledger: SqlLedger
    inbox: SqlInbox
    proposals: SqlProposals
    surges: SqlSurges
    archive: SqlReading
    effect: SqlEffect
    forecasts: SqlForecasts
    outcomes: OutcomeKeeper
    events: KubeEvents
    leadership: Leadership
    journal: Journal
    parts: FailedParts
    """What fails unexpectedly, and is skipped or restarted."""
    stack: ExitStack
    """Closed with the daemon."""

    def leads(self) -> bool:
        """Whether this replica may evict and has read the cluster."""
        return self.leadership.holds() and self.cluster.synced()

    def database_problem(self) -> str:
        """Why the database can't be used, or may not be because it lacks evictions; empty when it can."""
        try:
            self.ledger.check_sequence()
        except RebalancerError as error:
            return str(error)
        problem = self.records.write_problem
        return f"the last write failed: {problem}" if problem else ""

    def attempt_write(self) -> None:
        """Write again after a write that failed: the next cycle may be an hour away, or another replica's."""
        with suppress(RebalancerError):
            self.ledger.write_unwritten()
        if self.records.write_problem:
            with suppress(RebalancerError):
                self.records.attempt_write()

    def activate(self, policy: RebalancerPolicy, clock: Clock, stop_asked: Callable[[], bool]) -> Active:
        """Build what a policy needs; long reads end when `stop_asked` returns true. Raises ConfigError."""
        for each in policy.strategies:
            strategy_for(each)  # imported before it is needed: an import in a cycle fails without file descriptors
        own = ExitStack()  # closed when another policy has replaced this one, or with the daemon
        self.stack.callback(own.close)
        progress, instant = NullProgress(), without_stabilization(policy)

        def stopping() -> bool:
            return stop_asked() or not self.leadership.holds()

        context = make_context(
            policy,
            self.settings,
            self.client,
            clock,
            progress,
            own,
            records=self.records,
            ledger=self.ledger,
            proposals=self.proposals,
            surges=self.surges,
            lease=self.leadership,
        )
        keepers = None
        if policy.forecast.mode != "Off":
            keepers = own.enter_context(
                history_keepers(policy, self.settings, progress=progress, clock=clock, stopping=stopping)
            )

        def other_reader() -> UsageReader:
            return usage_of(instant, self.client, clock, progress, own, beside=context.usage)

        active = active_of(
            policy,
            replace(context, cluster=self.cluster, parts=self.parts),
            self.records,
            keepers=keepers,
            usage=other_reader(),
            standard=slo_reader_of(policy, own),
            outcomes=self.outcomes,
            stopping=stopping,
        )
        return replace(active, instant_usage=other_reader(), close=own.close)


@contextmanager
def open_daemon_resources(
    policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None, dry_run: bool = False
) -> Iterator[DaemonResources]:
    """Connections for the daemon, which evicts nothing in a `dry_run`. A new SQLite file gets its tables. Raises
    ConfigError, ConnectError."""
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        watching = client_of(settings, stack)  # long streams and short calls don't share connections
        create_database(settings)
        records = stack.enter_context(records_of(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)
        sighting = Sighting()

        def lease_lost() -> None:
            ledger.cluster_uid = ""  # read again, as at a start: another API server may answer by now

        parts = FailedParts(now=time.time, monotonic=time.monotonic)
        yield DaemonResources(
            settings=settings,
            client=client,
            cluster=WatchedCluster(client=watching, clock=clock, parts=parts),
            records=records,
            ledger=ledger,
            inbox=records.inbox(clock=ledger_clock),
            proposals=records.proposals(clock=ledger_clock),
            surges=records.surges(clock=ledger_clock),
            archive=records.reading(),
            effect=records.effect(),
            forecasts=records.forecasts(),
            outcomes=OutcomeKeeper(records=records.outcomes()),
            events=KubeEvents(client=client, clock=clock, instance=process_identity(settings)),
            leadership=Leadership(
                make_lock=lambda: lease_lock(settings, client, policy, records, ledger, sighting, acts=not dry_run),
                fence=ledger.fence,
                lost=lease_lost,
            ),
            journal=DayJournal(Path(settings.history_dir), cluster=policy.cluster),
            parts=parts,
            stack=stack,
        )
