"""Eviction records as rows of the table `evictions`, and the ledger entries that hang on them.

An eviction and its entries change in one transaction: an outcome of DID_NOT_HAPPEN refunds what was reserved for it.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING
from enum import Enum
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, Select, and_, false, insert, update

from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import (
    DID_NOT_HAPPEN,
    FIELDS,
    Eviction,
    Outcome,
    PodAmount,
    TargetNode,
    eviction_of,
    value_of,
)
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.errors import UnsafeDataError
from rebalancer.store.db.engine import read, shown_url
from rebalancer.store.db.tables import ENTRIES, EVICTIONS

UNRECONCILED = and_(EVICTIONS.c.dry_run == false(), EVICTIONS.c.outcome.in_((Outcome.PLANNED, Outcome.UNKNOWN)))
"""The process died around the call, or the call timed out: it may have happened."""
COLUMNS = tuple(name for name in FIELDS if name in EVICTIONS.c)
"""Fields of the record, each a column. `service` has a second one, `service_kind`; `target_node` is derived."""
_NOT_READ = {name: "" for name, each in FIELDS.items() if each.default is MISSING and each.default_factory is MISSING}


def eviction_row(eviction: Eviction) -> dict[str, Any]:
    """Column -> value. NaN and the empty text ("not known") are NULL where the column allows it."""
    row = {name: _stored(value_of(eviction, name)) for name in COLUMNS}
    row |= {"service_kind": eviction.service.kind, "target_node": eviction.target_node}
    return {column: None if value == "" and EVICTIONS.c[column].nullable else value for column, value in row.items()}


def read_eviction(row: RowMapping | Mapping[str, Any]) -> Eviction:
    """The record of a row of EVICTIONS, or of some of its columns, `service` among them.

    What is NULL or not selected has the field's default. `scopes` are rows of ENTRIES.
    """
    values: dict[str, Any] = _NOT_READ | {
        name: value for name, value in row.items() if value is not None and name in FIELDS
    }
    namespace, _, service = row["service"].partition("/")
    values["service"] = Service(kind=row.get("service_kind", ""), namespace=namespace, name=service)
    values["record"] = row.get("id")
    if "outcome" in row:
        values["outcome"] = Outcome(row["outcome"])
    if "target_nodes" in row:
        values["target_nodes"] = tuple(TargetNode(each["node"], each["probability"]) for each in row["target_nodes"])
    if row.get("amounts"):
        values["amounts"] = {
            name: PodAmount(*(math.nan if part is None else part for part in each))
            for name, each in row["amounts"].items()
        }
    return eviction_of(**values)


def read_evictions(engine: Engine, query: Select[Any]) -> list[Eviction]:
    """The records of a query, as `read_eviction` has them."""
    return read(engine, lambda connection: [read_eviction(row) for row in connection.execute(query).mappings()])


def _stored(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Service):
        return str(value)
    if isinstance(value, Mapping):
        return {name: [_stored(float(part)) for part in each] for name, each in value.items()} or None
    if isinstance(value, tuple):
        return [{"node": each.node, "probability": float(each.probability)} for each in value]
    return value


def planned_row(report: CycleReport, eviction: Eviction, *, cluster: str, lease_term: int | None) -> dict[str, Any]:
    """Column -> value of an eviction before its call, without `planned_at`."""
    row = eviction_row(eviction) | {
        "cycle": report.id,
        "cluster": cluster,
        "dry_run": report.dry_run,
        "lease_term": lease_term,
        "outcome": Outcome.PLANNED.value,
    }
    del row["planned_at"]
    return row


def add_eviction(
    connection: Connection,
    report: CycleReport,
    eviction: Eviction,
    *,
    cluster: str,
    at: float,
    lease_term: int | None = None,
) -> int:
    """Record an eviction before its call; the row's id."""
    row = planned_row(report, eviction, cluster=cluster, lease_term=lease_term) | {"planned_at": at}
    return int(connection.execute(insert(EVICTIONS).values(row).returning(EVICTIONS.c.id)).scalar_one())


def change_eviction(connection: Connection, record: int, *, cluster: str, **values: Any) -> None:
    """Change the row of one eviction. Raises UnsafeDataError when it is not there (any more).

    An outcome of DID_NOT_HAPPEN refunds it, EVICTED and UNKNOWN count again what was refunded, from `answered_at`; with
    `replaced_at` or `closed_at` it is no longer in flight.
    """
    # within our own cluster only: an id from elsewhere must not change another cluster's row
    statement = update(EVICTIONS).where(EVICTIONS.c.id == record, EVICTIONS.c.cluster == cluster)
    if connection.execute(statement.values(values)).rowcount != 1:
        shown = shown_url(connection.engine.url)
        raise UnsafeDataError(f"{shown}: eviction {record} is not in the database any more")
    if values.get("outcome") in DID_NOT_HAPPEN:
        _change_entries(connection, record, counted=False, in_flight=False)
    elif values.get("outcome") in (Outcome.EVICTED, Outcome.UNKNOWN):
        # refunded while the process was stopped with its call under way
        refunded = update(ENTRIES).where(ENTRIES.c.eviction == record, ENTRIES.c.counted == false())
        again = {"at": values["answered_at"]} if "answered_at" in values else {}
        connection.execute(refunded.values(counted=True, in_flight=True, **again))
    elif values.get("replaced_at") is not None or values.get("closed_at") is not None:
        _change_entries(connection, record, in_flight=False)


def _change_entries(connection: Connection, record: int, **values: bool) -> None:
    connection.execute(update(ENTRIES).where(ENTRIES.c.eviction == record).values(values))


def answered(eviction: Eviction, *, at: float) -> dict[str, Any]:
    """What a call's answer changes in the eviction's row; `at` in seconds since the epoch."""
    row = eviction_row(eviction)
    deadline = ["deadline_at"] if eviction.answered.in_background else []
    columns = ("outcome", "code", "detail", "in_background", *deadline)
    return {column: row[column] for column in columns} | {"answered_at": at}
