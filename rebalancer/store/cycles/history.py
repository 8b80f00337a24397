"""Cycles read back as plain dicts: for `db status`, reports and the dashboard.

Keys are the columns' names, times are seconds since the epoch, figures that are not known are None.
"""

from typing import Any

from sqlalchemy import Connection, Select, Table, and_, false, func, select

from rebalancer.model.eviction import Outcome
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, EVICTIONS, FINDINGS, REFUSALS

# Evictions whose outcome is not known: the process died around the call, or the call timed out.
UNRECONCILED = and_(EVICTIONS.c.dry_run == false(), EVICTIONS.c.outcome.in_((Outcome.PLANNED, Outcome.UNKNOWN)))


def cycles(connection: Connection, *, limit: int, cluster: str | None = None) -> list[dict[str, Any]]:
    """The newest cycles, newest first, each with `outcomes`: outcome -> evictions. `cluster` None means all."""
    query = select(CYCLES).order_by(CYCLES.c.started_at.desc(), CYCLES.c.id.desc()).limit(limit)
    if cluster is not None:
        query = query.where(CYCLES.c.cluster == cluster)
    found = _dicts(connection, query)
    outcomes: dict[str, dict[str, int]] = {cycle["id"]: {} for cycle in found}
    counts = (
        select(EVICTIONS.c.cycle, EVICTIONS.c.outcome, func.count())
        .where(EVICTIONS.c.cycle.in_(list(outcomes)))
        .group_by(EVICTIONS.c.cycle, EVICTIONS.c.outcome)
        .order_by(EVICTIONS.c.cycle, EVICTIONS.c.outcome)
    )
    for cycle, outcome, count in connection.execute(counts):
        outcomes[cycle][outcome] = count
    return [cycle | {"outcomes": outcomes[cycle["id"]]} for cycle in found]


def cycle_report(connection: Connection, *, cycle: str) -> dict[str, Any] | None:
    """All that is kept of one cycle: `cycle`, `nodes`, `findings`, `evictions`, `refusals`; None if there is none.

    Nodes come in the order of their names, the rest in the order in which it was written.
    """
    found = _dicts(connection, select(CYCLES).where(CYCLES.c.id == cycle))
    if not found:
        return None
    return {
        "cycle": found[0],
        "nodes": _dicts(
            connection, select(CYCLE_NODES).where(CYCLE_NODES.c.cycle == cycle).order_by(CYCLE_NODES.c.node)
        ),
        "findings": _rows_of(connection, FINDINGS, cycle),
        "evictions": _rows_of(connection, EVICTIONS, cycle),
        "refusals": _rows_of(connection, REFUSALS, cycle),
    }


def count_unreconciled(connection: Connection) -> int:
    """Evictions of any cluster whose outcome is not known."""
    return connection.execute(select(func.count()).select_from(EVICTIONS).where(UNRECONCILED)).scalar_one()


def _rows_of(connection: Connection, table: Table, cycle: str) -> list[dict[str, Any]]:
    return _dicts(connection, select(table).where(table.c.cycle == cycle).order_by(table.c.id))


def _dicts(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]
