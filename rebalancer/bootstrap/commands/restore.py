"""`rebalancer db accept-restore`: the database goes on, and counts again what it lacks where that can be known."""

import uuid
from contextlib import ExitStack
from dataclasses import dataclass

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import lease_lock
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.bootstrap.wiring.database import records_of
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.observe.ledger_state import longest_window
from rebalancer.cycle.observe.restored_evictions import counted_again, evictions_by_replacement
from rebalancer.kube.actions.eviction_events import read_eviction_events
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import KubeCluster, cluster_uid
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConfigError, RebalancerError
from rebalancer.policy import RebalancerPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRestore:
    """What was accepted."""

    had: int
    """Evictions that the database had reserved."""
    missing: int
    """Reservations that it lacked."""
    counted: tuple[Eviction, ...]
    """Evictions that are counted again."""
    paused_until: float | None
    """End of the cluster's pause, in seconds since the epoch; None = every missing eviction is counted again."""
    problem: str = ""
    """Why our Events could not be read; empty = they were."""


def accept_restore(policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None) -> AcceptedRestore:
    """Let the database go on after a restore, or with a rebuilt cluster. Evictions that it lacks are counted again,
    where our Events or their replacements show them.

    No limit counts the others, so while there are some the cluster is paused for the longest window: they may be
    reservations whose call was refused. `clock` replaces the machine's and the database's. Raises ConfigError when the
    database lacks none, ConnectError, UnsafeDataError.
    """
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = client_of(settings, stack)
        records = stack.enter_context(records_of(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)
        known = lease_lock(settings, client, policy, records, ledger, checked=False).noted_sequence()
        same, had = ledger.of_cluster(cluster_uid(client)), ledger.sequence
        if same and known <= had:
            raise ConfigError(f"the database lacks no evictions: it has {had}, the Lease knows of {known}")
        missing, now = max(known - had, 0), ledger.now()
        snapshot = KubeCluster(client=client, clock=clock, progress=NullProgress()).snapshot()
        written, problem = _of_events(client)
        lost = ledger.lacking([counted_again(each, policy, snapshot, now=now) for each in written])
        since = ledger.last_written()
        if since is not None and len(lost) < missing:
            lost += evictions_by_replacement(
                policy,
                snapshot,
                since=since,
                most=missing - len(lost),
                replacements=ledger.replacements(since),
                in_flight=[*ledger.open_evictions(), *lost],
            )
        report = CycleReport(
            id=uuid.uuid4().hex, cluster=policy.cluster, trigger=Trigger.RESTORE, dry_run=False, started_at=now
        )
        report.notes.append(f"the database had {had} evictions, {missing} were missing")
        until = None if same and len(lost) >= missing else now + longest_window(policy)
        counted = ledger.accept_restore(max(known, had), until=until, report=report, evictions=lost)
        return AcceptedRestore(had=had, missing=missing, counted=tuple(counted), paused_until=until, problem=problem)


def _of_events(client: ApiClient) -> tuple[list[Eviction], str]:
    """(evictions of our Events, why these can't be read)."""
    try:
        return read_eviction_events(client), ""
    except RebalancerError as error:
        return [], str(error)
