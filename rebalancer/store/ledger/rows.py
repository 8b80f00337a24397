"""Rows of evictions, as the records and the ledger write them, and the entries that hang on them.

An eviction and its entries change in one transaction: an outcome that says "it did not happen" gives back what was
reserved for it, whoever writes it.
"""

from typing import Any

from sqlalchemy import Connection, insert, select, update

from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.plan import CycleReport, Eviction, Outcome
from rebalancer.store.cycles import history
from rebalancer.store.db.engine import shown_url
from rebalancer.store.db.tables import ENTRIES, EVICTIONS
from rebalancer.store.ledger.settle import Unsettled

DID_NOT_HAPPEN = (Outcome.REFUSED, Outcome.FAILED)
"""Outcomes that are certain and cost nobody anything."""

MAY_HAVE_HAPPENED = (Outcome.PLANNED, Outcome.EVICTED, Outcome.UNKNOWN)


def add_eviction(
    connection: Connection, report: CycleReport, eviction: Eviction, *, cluster: str, at: float, **more: object
) -> int:
    """Write an eviction before its call; the row's id."""
    move = eviction.move
    row = {
        "cycle": report.id,
        "cluster": cluster,
        "pool": move.pool,
        "node": move.node_name,
        "namespace": move.namespace,
        "pod": move.name,
        "uid": move.uid,
        "service": str(move.service),
        "service_kind": move.service.kind,
        "strategy": move.strategy,
        "cpu_millicores": move.cpu_millicores,
        "landings": [{"node": node, "share": float(share)} for node, share in eviction.landings],
        "reason": move.reason,
        "outcome": Outcome.PLANNED.value,
        "detail": eviction.detail,
        "dry_run": report.dry_run,
        "planned_at": at,
        **more,
    }
    return int(connection.execute(insert(EVICTIONS).values(row).returning(EVICTIONS.c.id)).scalar_one())


def change_eviction(connection: Connection, record: int, *, cluster: str, **values: Any) -> None:
    """Change the row of one eviction. Raises UnsafeDataError when it is not there (any more).

    An outcome of DID_NOT_HAPPEN refunds it, a replacement that was seen Ready ends its being in flight.
    """
    # within our own cluster only: an id from elsewhere must not change another cluster's row
    statement = update(EVICTIONS).where(EVICTIONS.c.id == record, EVICTIONS.c.cluster == cluster)
    if connection.execute(statement.values(values)).rowcount != 1:
        shown = shown_url(connection.engine.url)
        raise UnsafeDataError(f"{shown}: eviction {record} is not in the database any more")
    if values.get("outcome") in DID_NOT_HAPPEN:
        _change_entries(connection, record, counted=False, in_flight=False)
    elif values.get("replaced_at") is not None:
        _change_entries(connection, record, in_flight=False)


def _change_entries(connection: Connection, record: int, **values: bool) -> None:
    connection.execute(update(ENTRIES).where(ENTRIES.c.eviction == record).values(values))


def answered(eviction: Eviction, *, at: float) -> dict[str, Any]:
    """What a call's answer changes in the eviction's row; `at` in seconds since the epoch."""
    return {
        "outcome": eviction.outcome.value,
        "code": None if eviction.code is None else eviction.code.value,
        "detail": eviction.detail,
        "answered_at": at,
    }


def unsettled_rows(connection: Connection, *, cluster: str) -> list[Unsettled]:
    """Evictions of a cluster whose outcome nobody knows, oldest first."""
    rows = EVICTIONS.c
    query = select(EVICTIONS).where(rows.cluster == cluster, history.UNSETTLED).order_by(rows.id)
    return [
        Unsettled(
            record=row.id,
            cycle=row.cycle,
            namespace=row.namespace,
            pod=row.pod,
            uid=row.uid,
            node=row.node,
            service=row.service,
            outcome=Outcome(row.outcome),
            planned_at=row.planned_at,
            lease_term=row.lease_term,
        )
        for row in connection.execute(query)
    ]
