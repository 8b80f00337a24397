"""Evictions that the database lacks since it was restored, counted again."""

from collections.abc import Sequence

from sqlalchemy import Connection, false, insert, select, update

from rebalancer import __version__
from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.store.db.tables import CYCLES, EVICTIONS
from rebalancer.store.ledger.counting import add_entries
from rebalancer.store.ledger.rows import add_eviction

_ASKED_AT_ONCE = 500


def lacking(connection: Connection, evictions: Sequence[Eviction]) -> list[Eviction]:
    """Those whose pod has no row that counts, in any cluster; one whose UID is not known is lacking."""
    rows, known = EVICTIONS.c, set[str]()
    uids = sorted({each.uid for each in evictions if each.uid})
    for start in range(0, len(uids), _ASKED_AT_ONCE):
        these = rows.uid.in_(uids[start : start + _ASKED_AT_ONCE])
        counting = (rows.dry_run == false(), rows.outcome.in_(MAY_HAVE_HAPPENED))
        known.update(connection.execute(select(rows.uid).where(these, *counting)).scalars())
    return [each for each in evictions if each.uid not in known]


def count_again(
    connection: Connection, report: CycleReport, evictions: Sequence[Eviction], *, cluster: str
) -> list[Eviction]:
    """Write the evictions that are lacking with their `outcome`, in flight and counted in their `scopes` from their
    `planned_at` on, as those of the cycle `report`. The scopes must be locked. Those that were written."""
    added = lacking(connection, evictions)
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
        record = add_eviction(connection, report, each, cluster=cluster, at=each.planned_at)
        connection.execute(update(EVICTIONS).where(EVICTIONS.c.id == record).values(outcome=each.outcome.value))
        add_entries(connection, each.scopes, eviction=record, at=each.planned_at)
    return added
