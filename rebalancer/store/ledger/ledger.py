"""The ledger of evictions: how many, how fast, how many at once, over every cluster that shares the database.

    reserve ──> (the eviction call) ──> outcome ──> landed
       │                                   │          └─> late, while the replacement isn't Ready in time
       └─> Denied                          └─> refunded if it did not happen

A reservation is one short transaction: lock the rows of the scopes in sorted order, read the clock, count, and write
the eviction with one entry for each scope, or nothing; on PostgreSQL in one round trip (`round_trip`). It is committed
before the call, and no transaction is open during the call. A process that dies at any step leaves a row that counts
until `reconcile_outcomes` at the next start.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    Select,
    false,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction, Outcome
from rebalancer.model.decisions.limits import (
    EVERY_NODE,
    Check,
    Denied,
    LedgerEntry,
    ReplacementLineage,
    Scope,
)
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Clock, ClusterReader
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CYCLES, ENTRIES, EVICTIONS, SCOPES
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
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS, reconciled_outcome
from rebalancer.store.ledger.restore import count_again, lacking
from rebalancer.store.ledger.rows import (
    UNRECONCILED,
    add_eviction,
    answered,
    change_eviction,
    eviction_row,
    read_eviction,
    read_evictions,
)
from rebalancer.store.retention import pruning
from rebalancer.store.retention.details import keep_for

START_UPS_READ = 20


class SqlLedger(OperatorState):
    """The ledger of one cluster; for several threads and processes at once.

    Time is the database's clock, which all clusters share; a `clock` replaces it where time runs otherwise (the lab).
    Every method is one short transaction; all raise ConfigError, ConnectError.
    """

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        super().__init__(engine=engine, cluster=cluster, clock=clock)
        self._reserve_at_once: Callable[..., list[Reserved | None]] | None = None
        if engine.dialect.name == "postgresql":
            # now, and not at the first reservation: an import in a cycle fails without file descriptors
            from rebalancer.store.ledger.round_trip import reserve_at_once

            self._reserve_at_once = reserve_at_once

    # -- one eviction -------------------------------------------------------------------------------------------------

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
        record, number, wanted.eviction.planned_at = answer
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
        own = select(SCOPES.c.sequence).where(SCOPES.c.kind == "cluster", SCOPES.c.key == self._cluster)
        self._sequence = read(self._engine, lambda connection: connection.execute(own).scalar()) or 0
        return self._sequence

    def lacking(self, evictions: Sequence[Eviction]) -> list[Eviction]:
        """Those of the evictions that no row of the ledger counts."""
        return read(self._engine, lambda connection: lacking(connection, evictions))

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
            return count_again(connection, report, evictions, cluster=self._cluster) if report is not None else []

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

        Raises UnsafeDataError when the ledger has seen a newer one, or is another Kubernetes cluster's.
        """

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

    def outcome(self, eviction: Eviction) -> None:
        """Write the outcome of the call into the row `eviction.record`.

        REFUSED and FAILED are refunded with it; EVICTED and UNKNOWN stay counted, and in flight, and count again where
        the answer came after a refund. EVICTED ends the service's backoff on every node: the webhook that had refused
        it admits it again. Raises UnsafeDataError when the row is not there (any more).
        """
        self.outcomes([eviction])

    def outcomes(self, evictions: Sequence[Eviction]) -> None:
        """`outcome` of several evictions, in one transaction."""
        if any(each.record is None for each in evictions):
            raise ValueError("an outcome without its reservation")

        def work(connection: Connection) -> None:
            now = self._now(connection)
            # in one order, so that two processes which answer the same ones cannot deadlock
            for each in sorted(evictions, key=lambda each: each.record or 0):
                change_eviction(connection, each.record or 0, cluster=self._cluster, **answered(each, at=now))
            ended = sorted({each.service_identity for each in evictions if each.outcome is Outcome.EVICTED})
            self._end_backoffs(connection, ended, node=EVERY_NODE)

        write(self._engine, work)

    def cancel_reservation(self, record: int, *, detail: str = "not carried out") -> None:
        """Refund a reservation: the eviction did not happen. Idempotent.

        The row's outcome becomes FAILED. Raises UnsafeDataError when the row is not there (any more).
        """

        def work(connection: Connection) -> None:
            outcome = connection.execute(select(EVICTIONS.c.outcome).where(EVICTIONS.c.id == record)).scalar()
            # the API server's answer stays
            kept = outcome is not None and outcome not in MAY_HAVE_HAPPENED
            values = {"outcome": outcome} if kept else {"outcome": Outcome.FAILED.value, "detail": detail}
            change_eviction(connection, record, cluster=self._cluster, **values)

        write(self._engine, work)

    # -- until its replacement is Ready -------------------------------------------------------------------------------

    def open_evictions(self) -> list[Eviction]:
        """Evictions of this cluster that happened, or may have, and are in flight; oldest first."""
        rows, entries = EVICTIONS.c, ENTRIES.c
        in_flight = select(entries.eviction).where(
            entries.kind == "cluster", entries.key == self._cluster, entries.in_flight == true()
        )
        query = select(EVICTIONS).where(rows.id.in_(in_flight)).order_by(rows.planned_at, rows.id)
        scopes = select(entries.eviction, entries.kind, entries.key).where(entries.eviction.in_(in_flight))

        def work(connection: Connection) -> list[Eviction]:
            found = {row["id"]: read_eviction(row) for row in connection.execute(query).mappings()}
            counted: dict[int, list[Scope]] = {record: [] for record in found}
            for record, kind, key in connection.execute(scopes):
                # READ COMMITTED: one may have been reserved between the two statements
                counted.get(record, []).append(Scope(kind, key))
            for record, each in found.items():
                each.scopes = tuple(sorted(counted[record]))
            return list(found.values())

        return read(self._engine, work)

    def replacement_uids(self, since: float) -> set[str]:
        """UIDs of this cluster's replacements that were Ready at or after `since`."""
        rows = EVICTIONS.c
        query = select(rows.replacement_uid).where(
            rows.cluster == self._cluster, rows.replaced_at >= since, rows.replacement_uid.is_not(None)
        )
        return set(read(self._engine, lambda connection: connection.execute(query).scalars().all()))

    def replacements(self, since: float) -> dict[str, str]:
        """UID of the same replacements -> the node that the evicted pod left."""
        rows = EVICTIONS.c
        query = select(rows.replacement_uid, rows.node).where(
            rows.cluster == self._cluster, rows.replaced_at >= since, rows.replacement_uid.is_not(None)
        )
        return {row.replacement_uid: row.node for row in read(self._engine, lambda c: c.execute(query).all())}

    def evicted(self, since: float) -> list[Eviction]:
        """Evictions of this cluster that happened, or may have, at or after `since`; oldest first."""
        rows = EVICTIONS.c
        happened = (rows.dry_run == false(), rows.outcome.in_(MAY_HAVE_HAPPENED))
        query = select(EVICTIONS).where(rows.cluster == self._cluster, rows.planned_at >= since, *happened)
        return read_evictions(self._engine, query.order_by(rows.planned_at, rows.id))

    def replaced(self, since: float) -> list[Eviction]:
        """Evictions of this cluster whose replacement was Ready at or after `since`; oldest first."""
        rows = EVICTIONS.c
        query = select(EVICTIONS).where(rows.cluster == self._cluster, rows.replaced_at >= since)
        return read_evictions(self._engine, query.order_by(rows.planned_at, rows.id))

    def lineages(self, since: float) -> dict[str, ReplacementLineage]:
        """UID of each replacement of a pod evicted at or after `since` -> its evicted predecessors."""
        rows = EVICTIONS.c
        query = (
            select(rows.replacement_uid, rows.uid, rows.strategy, rows.service, rows.planned_at, rows.replaced_at)
            .where(rows.cluster == self._cluster, rows.planned_at >= since, rows.replacement_uid.is_not(None))
            .order_by(rows.service, rows.planned_at, rows.id)
        )
        found = read(self._engine, lambda connection: connection.execute(query).all())
        out: dict[str, ReplacementLineage] = {}
        service, over_at, uids, moved, came = "", 0.0, set[str](), dict[str, float](), list[str]()
        for row in found:
            if row.service != service or row.planned_at > over_at:
                out |= dict.fromkeys(came, ReplacementLineage(frozenset(uids), moved))
                service, over_at, uids, moved, came = row.service, 0.0, set(), {}, []
            over_at = max(over_at, row.replaced_at)
            uids.add(row.uid)
            moved[row.strategy] = row.planned_at
            came.append(row.replacement_uid)
        return out | dict.fromkeys(came, ReplacementLineage(frozenset(uids), moved))

    def start_ups(self, service: str) -> list[float]:
        """Start-up times of the newest replacements of `namespace/name` in this cluster, in seconds, newest first.

        From the latest end of the predecessor's grace period (a time may be negative) until the replacement was Ready.
        Without replacements that were not observed before the deadline: their start-up time is unknown.
        """
        rows = EVICTIONS.c
        query = self._started(rows.replaced_at, rows.planned_at, rows.grace_seconds).where(rows.service == service)
        query = query.order_by(rows.planned_at.desc(), rows.id.desc()).limit(START_UPS_READ)
        found = read(self._engine, lambda connection: connection.execute(query).all())
        return [row.replaced_at - row.planned_at - row.grace_seconds for row in found]

    def start_ups_by_service(self) -> dict[str, list[float]]:
        """`namespace/name` of each service with any -> the same, in one query."""
        rows = EVICTIONS.c
        newest = (rows.planned_at.desc(), rows.id.desc())
        place = func.row_number().over(partition_by=rows.service, order_by=newest).label("place")
        columns = (rows.service, rows.replaced_at, rows.planned_at, rows.grace_seconds, place)
        started = self._started(*columns).subquery()
        query = select(started).where(started.c.place <= START_UPS_READ).order_by(started.c.service, started.c.place)
        out: dict[str, list[float]] = {}
        for row in read(self._engine, lambda connection: connection.execute(query).all()):
            out.setdefault(row.service, []).append(row.replaced_at - row.planned_at - row.grace_seconds)
        return out

    def _started(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """Columns of this cluster's evictions whose replacement's start-up time is known."""
        rows = EVICTIONS.c
        return select(*columns).where(
            rows.cluster == self._cluster,
            rows.replacement_uid.is_not(None),
            rows.grace_seconds.is_not(None),
            or_(rows.replaced_at <= rows.deadline_at, rows.late == true()),
        )

    def landed(self, record: int, *, at: float, pod: str = "", uid: str = "", node: str = "") -> None:
        """Write that the eviction has landed at `at` (seconds since the epoch), and its replacement.

        The replacement's fields are empty without one (after a scale-down). `late` stays. Raises UnsafeDataError when
        the row is not there (any more).
        """
        values: dict[str, Any] = {
            "replaced_at": at,
            "replacement_pod": pod or None,
            "replacement_uid": uid or None,
            "replacement_node": node or None,
        }
        write(self._engine, lambda connection: change_eviction(connection, record, cluster=self._cluster, **values))

    def late(self, record: int) -> None:
        """Mark the eviction as late; it stays in flight. Raises UnsafeDataError as above."""
        write(self._engine, lambda connection: change_eviction(connection, record, cluster=self._cluster, late=True))

    def close(self, record: int, *, by: str, reason: str) -> None:
        """Close an eviction whose replacement was not seen Ready: it is no longer in flight, and stays counted.

        `by` is the user, or `rebalancer`. Raises UnsafeDataError as above.
        """

        def work(connection: Connection) -> None:
            values = {"closed_at": self._now(connection), "closed_by": by, "closed_reason": reason}
            change_eviction(connection, record, cluster=self._cluster, **values)

        write(self._engine, work)

    # -- views --------------------------------------------------------------------------------------------------------

    def entries(self, since_seconds: float, scopes: Sequence[Scope] | None = None) -> list[LedgerEntry]:
        """Entries that count now in this cluster's scopes and in those that all clusters share, oldest first.

        Those in flight, and those younger than `since_seconds`, the longest window. `scopes`: only of these.
        """
        rows = ENTRIES.c

        def work(connection: Connection) -> list[LedgerEntry]:
            since = max(self._now(connection) - since_seconds, 0.0)
            columns = (rows.kind, rows.key, rows.at, rows.in_flight, rows.id)
            flying = select(*columns, EVICTIONS.c.pull_bytes).join(EVICTIONS, EVICTIONS.c.id == rows.eviction)
            done = select(*columns, literal(0.0, Double).label("pull_bytes"))
            # two indexes, so two queries in one
            parts = [
                flying.where(rows.in_flight == true()),
                done.where(rows.at > since, rows.counted == true(), rows.in_flight != true()),
            ]
            if scopes is not None:
                parts = [
                    part.where(tuple_(rows.kind, rows.key).in_([tuple(each) for each in scopes])) for part in parts
                ]
            else:
                parts = [part.where(self._ours(rows.kind, rows.key)) for part in parts]
            # sorted here: to keep an ORDER BY, SQLite would walk through all entries in the order of their times
            found = sorted(connection.execute(union_all(*parts)), key=lambda row: (row.at, row.id))
            return [
                LedgerEntry(
                    Scope(row.kind, row.key),
                    row.at,
                    row.in_flight,
                    (row.pull_bytes or 0.0) if row.kind == "pulls" else 0.0,
                )
                for row in found
            ]

        return read(self._engine, work)

    def services_evicted_remotely(self, since_seconds: float) -> dict[str, float]:
        """Services (identities) with an eviction by another cluster in the last `since_seconds` -> its newest time.

        In seconds since the epoch. Only a check of kind `separation` is certain.
        """
        rows = EVICTIONS.c

        def work(connection: Connection) -> dict[str, float]:
            since = max(self._now(connection) - since_seconds, 0.0)
            query = (
                select(ENTRIES.c.key, ENTRIES.c.at)
                .join(EVICTIONS, rows.id == ENTRIES.c.eviction)
                .where(
                    ENTRIES.c.at > since,
                    ENTRIES.c.kind == "service",
                    ENTRIES.c.counted == true(),
                    rows.cluster != self._cluster,
                )
                .order_by(ENTRIES.c.at)
            )
            return {row.key: row.at for row in connection.execute(query)}

        return read(self._engine, work)

    # -- now and then -------------------------------------------------------------------------------------------------

    def unreconciled(self) -> list[Eviction]:
        """Evictions of this cluster whose outcome is not known, oldest first."""
        rows = EVICTIONS.c
        query = select(EVICTIONS).where(rows.cluster == self._cluster, UNRECONCILED).order_by(rows.id)
        return read_evictions(self._engine, query)

    def reconcile_outcomes(self, reader: ClusterReader) -> list[Eviction]:
        """Reconcile evictions without an outcome with the API server's state now; those whose outcome is known now.

        Hold the lease: another process's call in progress looks like one of a process that died. A pod that is alive
        proves nothing for CALL_GRACE_SECONDS after the record. An outcome that another process has written meanwhile
        stays: this one may have been stopped, and lost the lease. One small query while there is nothing to reconcile.
        Raises ConnectError also for the API server; evictions that were not reached stay as they are, and counted.
        """
        found = self.unreconciled()
        if not found:
            return []
        now = self.now()  # before the pods are read: a process may be stopped in between
        states = reader.pod_states(sorted({(each.namespace, each.pod) for each in found}))
        out = []
        for each in found:
            pod = states.get((each.namespace, each.pod))
            outcome, detail = reconciled_outcome(each, pod)
            if outcome is Outcome.FAILED and now - each.planned_at < CALL_GRACE_SECONDS:
                continue
            was, each.outcome, each.detail = each.outcome, outcome, detail
            each.in_background = pod is not None and pod.uid == each.uid and pod.eviction_in_progress
            if self._reconcile(each, was=was):
                out.append(each)
        return out

    def _reconcile(self, eviction: Eviction, *, was: Outcome) -> bool:
        """Whether the row had this outcome until now."""
        record = eviction.record
        assert record is not None

        def work(connection: Connection) -> bool:
            row = select(EVICTIONS.c.outcome).where(EVICTIONS.c.id == record).with_for_update()
            if connection.execute(row).scalar() != was.value:
                return False
            eviction.reconciled_at = self._now(connection)
            known = eviction_row(eviction)
            values = {column: known[column] for column in ("outcome", "detail", "reconciled_at", "in_background")}
            change_eviction(connection, record, cluster=self._cluster, **values)
            return True

        return write(self._engine, work)

    def prune_at_times(self, *, keep_details: float | None = None) -> None:
        """Drop what no limit can see any more and what is too old, once an hour over all clusters. See `store.pruning`.

        `keep_details` (seconds): this cluster's detail retention; None = as stated last.
        """
        if keep_details is not None:
            keep_for(self._engine, self._cluster, keep_details)
        pruning.prune_at_times(self._engine, clock=self._clock)
