"""Reservations: an eviction is counted, and its row written, before its call.

They are numbered, and belong to a term of the lease and to a Kubernetes cluster: a database that was restored, an older
leader or another cluster reserves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine, false, func, insert, select, union_all, update

from rebalancer import __version__
from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.limits import Check, Denied, Scope
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ledger_behind
from rebalancer.store.db.engine import check_integrity, read, write
from rebalancer.store.db.tables import CLUSTER_LIMITS, CYCLES, ENTRIES, EVICTION_BACKOFFS, EVICTIONS, PAUSES, SCOPES
from rebalancer.store.ledger.counting import (
    Reserved,
    Wanted,
    add_entries,
    claim_cluster,
    count,
    hold_scopes,
    lock_scopes,
    next_in_sequence,
    pause_in_force,
    scopes_of,
)
from rebalancer.store.ledger.operator_state import OperatorState
from rebalancer.store.ledger.rows import add_eviction

COUNTED = (SCOPES, EVICTIONS, ENTRIES, PAUSES, EVICTION_BACKOFFS, CLUSTER_LIMITS)
"""Tables by which an eviction is admitted."""
_ASKED_AT_ONCE = 500


class Reservations(OperatorState):
    """Counts evictions before their calls."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        super().__init__(engine=engine, cluster=cluster, clock=clock)
        self._sequence = 0
        """Number of the cluster's last reservation that this process has seen; 0 = none."""
        self.cluster_uid = ""
        """UID of the Kubernetes cluster that this process evicts in; empty = not known."""
        self._reserve_at_once: Callable[..., list[Reserved | None]] | None = None
        if engine.dialect.name == "postgresql":
            # now, and not at the first reservation: an import in a cycle fails without file descriptors
            from rebalancer.store.ledger.round_trip import reserve_at_once

            self._reserve_at_once = reserve_at_once

    def reserve(
        self,
        report: CycleReport,
        eviction: Eviction,
        *,
        checks: Sequence[Check],
        term: int | None,
    ) -> int | Denied:
        """`reserve_all` of one eviction."""
        return self.reserve_all(report, [(eviction, checks)], term=term)[0]

    def reserve_all(
        self, report: CycleReport, evictions: Sequence[tuple[Eviction, Sequence[Check]]], *, term: int | None
    ) -> list[int | Denied]:
        """Count each eviction in its `scopes` and write its row, if every check of it admits it: its id, or why not.
        Its `planned_at` is set. Those before it are counted then.

        All of it is one transaction, so those that are admitted are committed together, whatever denies the others;
        on PostgreSQL what is denied at once is counted again in a second one, which says why.

        The cluster's own scope always counts. Of several checks that deny, the answer is the one that denies longest;
        a pause of one of the scopes comes first. `report`'s cycle must have been begun, and is no dry run.
        Raises UnsafeDataError for a `term` of the lease that is older than one that the ledger has seen in this
        cluster: another process leads. And when the database lacks reservations that this process has seen.
        """
        if report.dry_run:
            raise ValueError("a dry run reserves nothing")
        wanted = [Wanted.of(eviction, checks, cluster=self._cluster) for eviction, checks in evictions]

        answers: list[int | Denied | None] = [None] * len(wanted)
        if (reserve_at_once := self._reserve_at_once) is not None:
            committed = write(
                self._engine,
                lambda connection: reserve_at_once(
                    connection,
                    report,
                    wanted,
                    cluster=self._cluster,
                    term=term,
                    known=self._sequence,
                    now=None if self._clock is None else self._clock.now(),
                ),
            )
            answers = [
                each if each is None else self._answered(one, each) for one, each in zip(wanted, committed, strict=True)
            ]
        if rest := [each for each, answer in zip(wanted, answers, strict=True) if answer is None]:
            found = write(self._engine, lambda connection: self._in_steps(connection, report, rest, term))
            denied = iter([self._answered(one, each) for one, each in zip(rest, found, strict=True)])
            return [next(denied) if answer is None else answer for answer in answers]
        return [answer for answer in answers if answer is not None]

    def _answered(self, wanted: Wanted, answer: Reserved | Denied) -> int | Denied:
        if isinstance(answer, Denied):
            return answer
        record, number, at = answer
        wanted.eviction.reserved = replace(wanted.eviction.reserved, planned_at=at)
        self._sequence = max(self._sequence, number)
        return record

    def _in_steps(
        self, connection: Connection, report: CycleReport, wanted: Sequence[Wanted], term: int | None
    ) -> list[Reserved | Denied]:
        lock_scopes(connection, scopes_of(wanted), cluster=self._cluster, term=term)
        known, answers = self._sequence, list[Reserved | Denied]()
        for each in wanted:
            now, denied, paused = count(connection, each.checks, cluster=self._cluster, clock=self._clock)
            pause = pause_in_force(connection, each.scopes, now=now) if paused else None
            if pause is not None or denied is not None:
                answers += [Denied.by(pause)] if pause is not None else [denied] if denied is not None else []
                continue
            known = next_in_sequence(connection, cluster=self._cluster, known=known)
            record = add_eviction(connection, report, each.eviction, cluster=self._cluster, at=now, lease_term=term)
            add_entries(connection, each.scopes, eviction=record, at=now)
            answers.append(Reserved(record, known, now))
        return answers

    @property
    def sequence(self) -> int:
        """Number of this cluster's last reservation, as far as this process has seen it. Nothing is read."""
        return self._sequence

    def read_sequence(self) -> int:
        """The same, as the database has it now."""
        self._sequence = self._sequence_in_database()
        return self._sequence

    def check_sequence(self) -> None:
        """Read the database. Raises UnsafeDataError when it lacks reservations that this process has seen,
        ConnectError, ConfigError."""
        known = self._sequence  # before it is read: reservations go on
        found = self._sequence_in_database()
        if found < known:
            raise ledger_behind(ledger=found, known=known)

    def _sequence_in_database(self) -> int:
        own = select(SCOPES.c.sequence).where(SCOPES.c.kind == "cluster", SCOPES.c.key == self._cluster)
        return read(self._engine, lambda connection: connection.execute(own).scalar()) or 0

    def lacking(self, evictions: Sequence[Eviction]) -> list[Eviction]:
        """Those of the evictions that no row of the ledger counts."""
        return read(self._engine, lambda connection: _lacking(connection, evictions))

    def last_written(self) -> float | None:
        """When this cluster's newest cycle or eviction was written, in seconds since the epoch; None before the
        first."""
        began, ended, evicted = CYCLES.c.started_at, CYCLES.c.finished_at, EVICTIONS.c.planned_at
        newest = union_all(
            select(func.max(began).label("at")).where(CYCLES.c.cluster == self._cluster),
            select(func.max(ended)).where(CYCLES.c.cluster == self._cluster),
            select(func.max(evicted)).where(EVICTIONS.c.cluster == self._cluster),
        ).subquery()
        query = select(func.max(newest.c.at))
        return read(self._engine, lambda connection: connection.execute(query).scalar())

    def accept_restore(
        self,
        sequence: int,
        *,
        until: float | None,
        report: CycleReport | None = None,
        evictions: Sequence[Eviction] = (),
    ) -> list[Eviction]:
        """Go on with a restored database, or with that of a cluster that was rebuilt: numbers continue after
        `sequence`, and the `evictions` that it lacks count again, as those of the cycle `report`. Others are counted by
        no limit: where there are some, the cluster is paused `until` then (seconds since the epoch). Those that count
        again."""
        own = Scope.of("cluster", self._cluster)

        def work(connection: Connection) -> list[Eviction]:
            hold_scopes(connection, sorted({own, *(scope for each in evictions for scope in each.scopes)}))
            mine = (SCOPES.c.kind == own.kind, SCOPES.c.key == own.key)
            uid = self.cluster_uid or None
            connection.execute(update(SCOPES).where(*mine).values(sequence=sequence, cluster_uid=uid))
            return _count_again(connection, report, evictions, cluster=self._cluster) if report is not None else []

        if until is not None:
            reason = "evictions from before the restore count again"
            self.pause(own, reason=reason, created_by="accept-restore", until=until)
        counted = write(self._engine, work)
        self._sequence = sequence
        return counted

    def last_term(self) -> int:
        """The highest lease term that was seen in this cluster; 0 before the first."""
        own = select(SCOPES.c.term).where(SCOPES.c.kind == "cluster", SCOPES.c.key == self._cluster)
        return read(self._engine, lambda connection: connection.execute(own).scalar()) or 0

    def fence(self, term: int) -> None:
        """Make `term` the cluster's, before a new leader's first reservation: older leaders can reserve no more.

        Raises UnsafeDataError when the ledger has seen a newer one, or is another Kubernetes cluster's, ConfigError
        when a SQLite file is damaged where limits are counted.
        """
        check_integrity(self._engine, (each.name for each in COUNTED))

        def work(connection: Connection) -> None:
            lock_scopes(connection, [Scope.of("cluster", self._cluster)], cluster=self._cluster, term=term)
            claim_cluster(connection, cluster=self._cluster, uid=self.cluster_uid)

        write(self._engine, work)

    def of_cluster(self, uid: str) -> bool:
        """Whether this ledger's evictions are of the Kubernetes cluster `uid`, which this process evicts in from now
        on. Also where either is not known."""
        self.cluster_uid = uid
        own = select(SCOPES.c.cluster_uid).where(SCOPES.c.kind == "cluster", SCOPES.c.key == self._cluster)
        known = read(self._engine, lambda connection: connection.execute(own).scalar())
        return not uid or not known or uid == known


def _lacking(connection: Connection, evictions: Sequence[Eviction]) -> list[Eviction]:
    """Those whose pod has no row that counts, in any cluster; one whose UID is not known is lacking."""
    rows, known = EVICTIONS.c, set[str]()
    uids = sorted({each.uid for each in evictions if each.uid})
    for start in range(0, len(uids), _ASKED_AT_ONCE):
        these = rows.uid.in_(uids[start : start + _ASKED_AT_ONCE])
        counting = (rows.dry_run == false(), rows.outcome.in_(MAY_HAVE_HAPPENED))
        known.update(connection.execute(select(rows.uid).where(these, *counting)).scalars())
    return [each for each in evictions if each.uid not in known]


def _count_again(
    connection: Connection, report: CycleReport, evictions: Sequence[Eviction], *, cluster: str
) -> list[Eviction]:
    """Write the evictions that are lacking with their `outcome`, in flight and counted in their `scopes` from their
    `planned_at` on, as those of the cycle `report`. The scopes must be locked. Those that were written."""
    added = _lacking(connection, evictions)
    if not added:
        return []
    cycle = {
        "id": report.id,
        "cluster": cluster,
        "trigger": report.trigger.value,
        "dry_run": False,
        "started_at": report.started_at,
        "finished_at": report.started_at,
        "version": __version__,
        "notes": list(report.notes),
        "nodes": 0,
        "hot_nodes": 0,
        "findings": 0,
        "evictions": len(added),
        "refusals": 0,
    }
    connection.execute(insert(CYCLES).values(cycle))
    for each in added:
        record = add_eviction(connection, report, each, cluster=cluster, at=each.reserved.planned_at)
        connection.execute(
            update(EVICTIONS).where(EVICTIONS.c.id == record).values(outcome=each.answered.outcome.value)
        )
        add_entries(connection, each.scopes, eviction=record, at=each.reserved.planned_at)
    return added
