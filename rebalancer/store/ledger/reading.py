"""Reads of the ledger: evictions, their replacements, and the entries that limits count."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Select,
    false,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    union_all,
)

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.limits import LedgerEntry, ReplacementLineage, Scope
from rebalancer.model.decisions.surges import FAILED
from rebalancer.store.db.engine import read
from rebalancer.store.db.tables import ENTRIES, EVICTIONS, SURGES
from rebalancer.store.ledger.part import LedgerPart
from rebalancer.store.ledger.rows import read_eviction, read_evictions

START_UPS_READ = 20


class LedgerReading(LedgerPart):
    """Reads reservations and their outcomes. Evictions of this cluster only, unless a method names others."""

    def open_evictions(self) -> list[Eviction]:
        """Evictions of this cluster that happened, or may have, and are in flight; oldest first."""
        rows, entries, in_flight = EVICTIONS.c, ENTRIES.c, self._in_flight()
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

    def surges(self) -> dict[int, str]:
        """Row of each eviction in flight that has a surge -> why that did not move the pod; empty while it may."""
        mine = SURGES.c.eviction.in_(self._in_flight())
        query = select(SURGES.c.eviction, SURGES.c.state, SURGES.c.reason).where(mine)
        found = read(self._engine, lambda connection: connection.execute(query).all())
        return {row.eviction: row.reason if row.state in FAILED else "" for row in found}

    def surging(self) -> frozenset[str]:
        """UIDs of the Deployments with a surge that is not over, or whose eviction is in flight still."""
        rows = SURGES.c
        going_on = or_(rows.ended_at.is_(None), rows.eviction.in_(self._in_flight()))
        query = select(rows.deployment_uid).where(rows.cluster == self._cluster, going_on)
        return frozenset(read(self._engine, lambda connection: connection.execute(query).scalars().all()))

    def _in_flight(self) -> Select[tuple[int]]:
        """Rows of this cluster's evictions in flight."""
        rows = ENTRIES.c
        return select(rows.eviction).where(rows.kind == "cluster", rows.key == self._cluster, rows.in_flight == true())

    def replacements(self, since: float) -> dict[str, str]:
        """UID of each replacement that was Ready at or after `since` -> the node that the evicted pod left."""
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
