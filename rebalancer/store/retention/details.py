"""Which details are dropped by age, and what is thinned out before. `pruning` does it.

Each cluster's policy says for how long it keeps details: cycles with what they found and refused, hot episodes, and
assessments that were made. Real evictions, their cycles, and hours stay for more than a year; an eviction also for as
long as anything counts it or its outcome is unknown. Daily counts stay.

`node_measurements` has the packed shares of the nodes that a cycle evaluated. After two days, and once the hot-node SLO
was evaluated for them, those of nodes with a finding, refusal, eviction or hot episode become rows of `cycle_nodes`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, exists, false, or_, select, true, union

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.effect_tables import (
    ASSESSMENTS,
    DRAINED_NODES,
    EFFECT_STATE,
    HOT_EPISODES,
    NODE_MEASUREMENTS,
    POOL_HOURS,
    REQUESTED,
    unpack_node_measurements,
)
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, ENTRIES, EVICTIONS, FINDINGS, PROPOSALS, REFUSALS

MEASUREMENT_RETENTION_SECONDS = 2 * DAY_SECONDS
DETAILS_SECONDS_AT_LEAST = 3 * DAY_SECONDS
"""A day's counts are made from its details until its last assessment, a day after the eviction, was made."""
HISTORY_SECONDS = 400 * DAY_SECONDS
"""Evictions and hours: a year can be compared with the one before."""
THINNED_AT_ONCE = 20
"""Cycles in one transaction: a tenth of a second's work."""

_OF_A_CYCLE = (CYCLE_NODES, NODE_MEASUREMENTS, FINDINGS, REFUSALS)
_UNRECONCILED = (Outcome.PLANNED.value, Outcome.UNKNOWN.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What is old in one cluster; seconds since the epoch."""

    cluster: str
    now: float
    before: float | None
    """Details from before are dropped; None: the cluster has not stated its detail retention."""
    looks_before: float
    """Node measurements from before are thinned out."""


def keep_for(engine: Engine, cluster: str, seconds: float) -> None:
    """Note for how long a cluster keeps details. Raises ConfigError, ConnectError."""
    kept = select(EFFECT_STATE.c.detail_retention_seconds).where(EFFECT_STATE.c.cluster == cluster)
    if read(engine, lambda connection: connection.execute(kept).scalar()) == seconds:
        return

    def work(connection: Connection) -> None:
        statement = upsert(connection)(EFFECT_STATE).values(cluster=cluster, detail_retention_seconds=seconds)
        connection.execute(
            statement.on_conflict_do_update(set_={"detail_retention_seconds": seconds}, index_elements=["cluster"])
        )

    write(engine, work)


def cuts(connection: Connection, now: float, *, older_than: float | None = None) -> list[Cut]:
    """One for each cluster in the database; `older_than` (seconds) replaces how long they keep details."""
    stated = {row.cluster: row for row in connection.execute(select(EFFECT_STATE))}
    named = union(select(CYCLES.c.cluster), select(HOT_EPISODES.c.cluster), select(EFFECT_STATE.c.cluster))
    out = []
    for cluster in sorted(connection.execute(named).scalars()):
        state = stated.get(cluster)
        keep = older_than
        if keep is None and state is not None:
            keep = state.detail_retention_seconds
        looks_before = now - MEASUREMENT_RETENTION_SECONDS
        if state is not None and state.slo_evaluated_until is not None:
            # an SLO that is evaluated late still finds the measurements
            looks_before = min(looks_before, state.slo_evaluated_until)
        out.append(
            Cut(
                cluster=cluster,
                now=now,
                before=None if keep is None else max(now - max(keep, DETAILS_SECONDS_AT_LEAST), 0.0),
                looks_before=max(looks_before, 0.0),
            )
        )
    return out


def old_rows(cut: Cut, *, after_their_parts: bool) -> list[tuple[Table, ColumnElement[bool]]]:
    """(table, which of its rows) of what is dropped, in that order; measurements that are thinned out are not in it.

    With `after_their_parts` a cycle goes only when nothing of it is left: its parts are dropped in small batches, and a
    cycle that took them along wouldn't be small.
    """
    past = (REQUESTED, and_(REQUESTED.c.cluster == cut.cluster, REQUESTED.c.at < max(cut.now - DAY_SECONDS, 0.0)))
    if cut.before is None:
        return [past]
    long_ago = max(cut.now - HISTORY_SECONDS, 0.0)
    of_cluster = and_(CYCLES.c.cluster == cut.cluster, CYCLES.c.started_at < cut.before)
    cycles = select(CYCLES.c.id).where(of_cluster)
    rehearsed = and_(EVICTIONS.c.dry_run == true(), EVICTIONS.c.cycle.in_(cycles))
    done = and_(
        EVICTIONS.c.cluster == cut.cluster,
        EVICTIONS.c.planned_at < long_ago,
        EVICTIONS.c.dry_run == false(),
        EVICTIONS.c.outcome.not_in(_UNRECONCILED),
        ~exists().where(ENTRIES.c.eviction == EVICTIONS.c.id),
    )
    stays = exists().where(EVICTIONS.c.cycle == CYCLES.c.id, true() if after_their_parts else and_(~rehearsed, ~done))
    parts = [exists().where(table.c.cycle == CYCLES.c.id) for table in _OF_A_CYCLE] if after_their_parts else []
    return [
        past,
        *((table, table.c.cycle.in_(cycles)) for table in _OF_A_CYCLE),
        (EVICTIONS, rehearsed),
        (EVICTIONS, done),
        (CYCLES, and_(of_cluster, ~stays, *(~part for part in parts))),
        (PROPOSALS, and_(PROPOSALS.c.cluster == cut.cluster, PROPOSALS.c.proposed_at < cut.before)),
        (HOT_EPISODES, and_(HOT_EPISODES.c.cluster == cut.cluster, HOT_EPISODES.c.ended_at < cut.before)),
        (
            ASSESSMENTS,
            and_(
                ASSESSMENTS.c.cluster == cut.cluster,
                ASSESSMENTS.c.assessed_at.is_not(None),
                ASSESSMENTS.c.last_eviction_at < cut.before,
            ),
        ),
        (DRAINED_NODES, and_(DRAINED_NODES.c.cluster == cut.cluster, DRAINED_NODES.c.emptied_at < long_ago)),
        (POOL_HOURS, and_(POOL_HOURS.c.cluster == cut.cluster, POOL_HOURS.c.hour < int(long_ago // 3600))),
    ]


def to_be_thinned(cut: Cut) -> ColumnElement[bool]:
    """Which node measurements are thinned out; those that are dropped as a whole are not among them."""
    cycles = select(CYCLES.c.id).where(CYCLES.c.cluster == cut.cluster, CYCLES.c.started_at < cut.looks_before)
    return NODE_MEASUREMENTS.c.cycle.in_(
        cycles if cut.before is None else cycles.where(CYCLES.c.started_at >= cut.before)
    )


def thin(engine: Engine, cut: Cut, batches: int | None) -> int:
    """Thin out node measurements batch by batch, at most so many (None = all); the number of cycles."""
    done, rounds = 0, 0
    while batches is None or rounds < batches:
        found = write(engine, lambda connection: _thin(connection, cut))
        done += found
        rounds += 1
        if found < THINNED_AT_ONCE:
            break
    return done


def _thin(connection: Connection, cut: Cut) -> int:
    query = select(NODE_MEASUREMENTS.c.cycle, NODE_MEASUREMENTS.c.nodes, CYCLES.c.started_at).join(
        CYCLES, CYCLES.c.id == NODE_MEASUREMENTS.c.cycle
    )
    found = connection.execute(query.where(to_be_thinned(cut)).limit(THINNED_AT_ONCE)).all()
    if not found:
        return 0
    ids = [row.cycle for row in found]
    wanted: dict[str, set[str]] = defaultdict(set)
    for table in (FINDINGS, REFUSALS, EVICTIONS):
        recorded = select(table.c.cycle, table.c.node).where(table.c.cycle.in_(ids)).distinct()
        for cycle, node in connection.execute(recorded):
            wanted[cycle].add(node)
    episodes = _episodes(connection, cut.cluster, [row.started_at for row in found])
    lines = []
    for row in found:
        hot = {node for node, start, end in episodes if start <= row.started_at <= end}
        for pool, node, share, high in unpack_node_measurements(row.nodes, wanted[row.cycle] | hot):
            if share is not None:
                line = {"cycle": row.cycle, "node": node, "pool": pool, "hot": False, "high": high}
                lines.append(line | {"cpu_before": share, "cpu_planned": share})
    if lines:
        # the others are there from the beginning, with what was planned
        connection.execute(upsert(connection)(CYCLE_NODES).on_conflict_do_nothing(), lines)
    connection.execute(delete(NODE_MEASUREMENTS).where(NODE_MEASUREMENTS.c.cycle.in_(ids)))
    return len(found)


def _episodes(connection: Connection, cluster: str, times: Sequence[float]) -> list[tuple[str, float, float]]:
    """(node, start, end) of those that lasted at any of the times or between them."""
    rows = HOT_EPISODES.c
    query = select(rows.node, rows.started_at, rows.ended_at).where(
        rows.cluster == cluster,
        rows.started_at <= max(times),
        or_(rows.ended_at.is_(None), rows.ended_at >= min(times)),
    )
    return [(row.node, row.started_at, row.ended_at or max(times)) for row in connection.execute(query)]
