"""The ledger with the cluster that its evictions are of, for commands that show it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.database import kept_records
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.errors import ledger_of_another
from rebalancer.model.parts import NOTE
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import SqlLedger, SqlRecords

MOST_UNFINISHED = 4
"""Newest cycles without an end that are looked past: one that runs, and those of processes that were killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The ledger, and the cluster that its evictions are of. The usage source is not needed."""

    ledger: SqlLedger | None
    """None where there is no database yet."""
    settings: Settings
    clock: Clock
    cluster: str
    failed_parts: tuple[str, ...] = ()
    """As in the function."""

    def now(self) -> float:
        """Seconds since the epoch, by the ledger's clock."""
        return self.clock.now() if self.ledger is None else self.ledger.now()

    def snapshot(self, progress: Progress) -> ClusterSnapshot:
        """Read the cluster. Raises ConfigError, ConnectError, and UnsafeDataError, also where the ledger's evictions
        are of another cluster."""
        # most commands that show the ledger end without the cluster
        from rebalancer.bootstrap.wiring.cluster import client_of
        from rebalancer.kube.snapshot.snapshot import KubeCluster, cluster_uid

        with ExitStack() as stack:
            client = client_of(self.settings, stack)
            if self.ledger is not None and not self.ledger.of_cluster(cluster_uid(client)):
                raise ledger_of_another(self.cluster)
            return KubeCluster(client=client, clock=self.clock, progress=progress).snapshot()


@contextmanager
def ledger_view(policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None) -> Iterator[LedgerView]:
    """For commands that show the ledger; reads alone. Raises ConfigError, ConnectError."""
    with kept_records(policy, settings) as records:
        yield LedgerView(
            ledger=None if records is None else records.ledger(clock=clock),
            settings=settings,
            clock=clock or SystemClock(),
            cluster=policy.cluster,
            failed_parts=() if records is None else failed_parts(records),
        )


def failed_parts(records: SqlRecords) -> tuple[str, ...]:
    """The notes of the last finished cycle about parts that fail and are skipped: one that is running, or was killed,
    has none yet. Raises ConnectError."""
    recent = records.reading().cycles(MOST_UNFINISHED + 1)
    finished = [each for each in recent if each.finished_at is not None][:1]
    return tuple(note for cycle in finished for note in cycle.notes if note.startswith(NOTE))
