"""Cycles, nodes and services of one cluster, for the dashboard.

Every method is one transaction of a few statements that only read. Each is bounded, by a number of rows or by a span of
time in which an index finds them: a page must not wait for a year of records.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, Select, exists, false, func, or_, select, true

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason
from rebalancer.model.records.cycles import (
    CycleNode,
    CycleRecord,
    CycleSummary,
    EvictionTotals,
    ExpectedPeak,
    PoolEviction,
    PoolMeasurement,
    RecordedFinding,
    RefusalExample,
    RefusalGroup,
    ServiceEvictions,
)
from rebalancer.model.records.effect import Outcome as Effect
from rebalancer.model.records.effect import Step
from rebalancer.model.records.forecasts import ForecastKind
from rebalancer.store.db.effect_tables import ASSESSMENTS, NODE_MEASUREMENTS, NodeMeasurements
from rebalancer.store.db.engine import read
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, EVICTIONS, FINDINGS, FORECASTS, REFUSALS
from rebalancer.store.ledger.rows import read_eviction

MAX_EVICTIONS = 50_000
"""Read for one list of services: a cluster that evicts 200 pods a day makes 18,000 in a quarter."""

_OF_SERVICE = (
    EVICTIONS.c.id,
    EVICTIONS.c.cycle,
    EVICTIONS.c.node,
    EVICTIONS.c.service,
    EVICTIONS.c.service_kind,
    EVICTIONS.c.strategy,
    EVICTIONS.c.planned_at,
    EVICTIONS.c.target_node,
    EVICTIONS.c.replacement_node,
    EVICTIONS.c.late,
)


class SqlReading:
    """See the module. All methods raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str) -> None:
        """The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster

    # -- cycles -------------------------------------------------------------------------------------------------------

    def cycles(
        self, limit: int, *, before: float | None = None, after: float | None = None, acted: bool = False
    ) -> list[CycleSummary]:
        """Cycles that began before `before`, newest first.

        With `after` instead: the first that began after it, newest first too. `acted`: only those with an eviction.
        """
        rows = CYCLES.c
        query = select(CYCLES).where(rows.cluster == self._cluster)
        if acted:
            query = query.where(exists().where(EVICTIONS.c.cycle == rows.id))
        if after is not None:
            query = query.where(rows.started_at > after).order_by(rows.started_at, rows.id)
        else:
            if before is not None:
                query = query.where(rows.started_at < before)
            query = query.order_by(rows.started_at.desc(), rows.id.desc())

        def work(connection: Connection) -> list[CycleSummary]:
            found = connection.execute(query.limit(limit)).mappings().all()
            outcomes = outcomes_of(connection, [row["id"] for row in found])
            return [_summary(row, outcomes[row["id"]]) for row in found]

        return sorted(read(self._engine, work), key=lambda cycle: (cycle.started_at, cycle.id), reverse=True)

    def cycle(self, cycle: str) -> CycleRecord | None:
        """All records of one cycle of this cluster; None if there is none."""

        def work(connection: Connection) -> CycleRecord | None:
            def rows_of(query: Select[Any]) -> Sequence[RowMapping]:
                return connection.execute(query).mappings().all()

            found = rows_of(select(CYCLES).where(CYCLES.c.id == cycle, CYCLES.c.cluster == self._cluster))
            if not found:
                return None
            summary = _summary(found[0], outcomes_of(connection, [cycle])[cycle])
            findings = rows_of(select(FINDINGS).where(FINDINGS.c.cycle == cycle).order_by(FINDINGS.c.id))
            evictions = rows_of(select(EVICTIONS).where(EVICTIONS.c.cycle == cycle).order_by(EVICTIONS.c.id))
            refusals = rows_of(select(REFUSALS).where(REFUSALS.c.cycle == cycle))
            nodes = rows_of(select(CYCLE_NODES).where(CYCLE_NODES.c.cycle == cycle).order_by(CYCLE_NODES.c.node))
            groups = (_refusals(row, at=summary.started_at) for row in refusals)
            return CycleRecord(
                summary=summary,
                findings=tuple(_finding(row, at=summary.started_at) for row in findings),
                evictions=tuple(read_eviction({**row, "trigger": summary.trigger}) for row in evictions),
                refusals=tuple(sorted(groups, key=_by_cause)),
                nodes=tuple(
                    CycleNode(**{name: value for name, value in row.items() if name != "cycle"}) for row in nodes
                ),
            )

        return read(self._engine, work)

    # -- one node -----------------------------------------------------------------------------------------------------

    def evictions_from(self, node: str, *, limit: int) -> list[Eviction]:
        """The newest evictions from a node, newest first, dry runs included."""
        return self._evictions(EVICTIONS.c.node == node, limit)

    def findings_of(self, node: str, *, since: float, limit: int) -> list[RecordedFinding]:
        """The newest findings of a node by cycles that began at or after `since`."""
        query = (
            select(FINDINGS, CYCLES.c.started_at)
            .join(CYCLES, CYCLES.c.id == FINDINGS.c.cycle)
            .where(*self._since(since), FINDINGS.c.node == node)
            .order_by(CYCLES.c.started_at.desc(), FINDINGS.c.id)
            .limit(limit)
        )
        found = read(self._engine, lambda connection: connection.execute(query).mappings().all())
        return [_finding(row, at=row["started_at"]) for row in found]

    def refusals_of(self, node: str, *, since: float) -> list[RefusalGroup]:
        """Per code the newest group of a node by cycles that began at or after `since`; the newest first, and
        GoalReached last."""
        query = (
            select(REFUSALS, CYCLES.c.started_at)
            .join(CYCLES, CYCLES.c.id == REFUSALS.c.cycle)
            .where(*self._since(since), REFUSALS.c.node == node)
            .order_by(CYCLES.c.started_at.desc(), REFUSALS.c.id)
        )
        found = read(self._engine, lambda connection: connection.execute(query).mappings().all())
        cycles = Counter(row["code"] for row in found)
        newest: dict[str, RefusalGroup] = {}
        for row in found:
            if row["code"] not in newest:
                newest[row["code"]] = _refusals(row, at=row["started_at"], cycles=cycles[row["code"]])
        return sorted(newest.values(), key=_is_no_cause)

    # -- nodes of a cycle ---------------------------------------------------------------------------------------------

    def refusals_on(self, nodes: Sequence[str], *, since: float) -> list[RefusalGroup]:
        """Of each node the refusals by the newest cycle since then that has any, without GoalReached."""
        query = (
            select(REFUSALS, CYCLES.c.started_at)
            .join(CYCLES, CYCLES.c.id == REFUSALS.c.cycle)
            .where(*self._since(since), REFUSALS.c.node.in_(nodes))
            .order_by(CYCLES.c.started_at.desc(), REFUSALS.c.id)
        )
        found = read(self._engine, lambda connection: connection.execute(query).mappings().all()) if nodes else []
        newest: dict[str, str] = {}
        for row in found:
            newest.setdefault(row["node"], row["cycle"])
        groups = [_refusals(row, at=row["started_at"]) for row in found if row["cycle"] == newest[row["node"]]]
        return [each for each in groups if not _is_no_cause(each)]

    def pool_measurements(self, since: float, *, known: Collection[str] = ()) -> list[PoolMeasurement]:
        """Of the cycles that began at or after `since` and are not `known`, by their start."""
        query = (
            select(NODE_MEASUREMENTS.c.cycle, CYCLES.c.started_at, NODE_MEASUREMENTS.c.nodes)
            .join(CYCLES, CYCLES.c.id == NODE_MEASUREMENTS.c.cycle)
            .where(*self._since(since), CYCLES.c.id.not_in(sorted(known)))
            .order_by(CYCLES.c.started_at, CYCLES.c.id)
        )

        def work(connection: Connection) -> list[PoolMeasurement]:
            # row by row: of 5,000 nodes an hour is megabytes
            rows = connection.execute(query)
            return [each for cycle, at, measured in rows for each in _measurements(cycle, at, measured)]

        return read(self._engine, work)

    # -- forecasts ----------------------------------------------------------------------------------------------------

    def expected_peaks(self, now: float) -> list[ExpectedPeak]:
        """The newest daily forecast of each node whose peak is still to come, without its margin: all that a follower
        knows. A node that pods were evicted from since has none."""
        rows, moved = FORECASTS.c, EVICTIONS.c
        relieved = exists().where(
            moved.cluster == rows.cluster,
            moved.node == rows.node,
            moved.planned_at >= rows.made_at,
            moved.dry_run == false(),
            moved.outcome.in_(MAY_HAVE_HAPPENED),
        )
        query = (
            select(rows.node, rows.peak_millicores - rows.margin_millicores, rows.peak_at, rows.made_at)
            .where(
                ~relieved,
                rows.cluster == self._cluster,
                rows.kind == ForecastKind.DAILY.value,
                rows.evaluated_at.is_(None),
                rows.until > now,
                rows.peak_at > now,
            )
            .order_by(rows.made_at)
        )
        found = read(self._engine, lambda connection: connection.execute(query).all())
        return list({row.node: ExpectedPeak._make(row) for row in found}.values())

    # -- services -----------------------------------------------------------------------------------------------------

    def services(self, since: float, *, like: str = "") -> list[ServiceEvictions]:
        """Services with evictions since then, those with most first; no dry runs.

        `like`: only those whose name contains it.
        """
        rows = EVICTIONS.c
        query = (
            select(*_OF_SERVICE, CYCLES.c.trigger)
            .join(CYCLES, CYCLES.c.id == rows.cycle)
            .where(
                rows.cluster == self._cluster,
                rows.dry_run.is_(False),
                rows.outcome.in_(MAY_HAVE_HAPPENED),
                rows.planned_at >= since,
            )
            .order_by(rows.planned_at.desc(), rows.id.desc())
            .limit(MAX_EVICTIONS)
        )
        if like:
            query = query.where(rows.service.contains(like, autoescape=True))

        def work(connection: Connection) -> list[ServiceEvictions]:
            return _by_service(connection.execute(query).mappings(), self._effects(connection, since))

        return read(self._engine, work)

    def evictions_of(self, service: str, *, limit: int) -> list[Eviction]:
        """The newest evictions of a service (`namespace/name`), newest first, dry runs included."""
        return self._evictions(EVICTIONS.c.service == service, limit)

    # -- all nodes ----------------------------------------------------------------------------------------------------

    def evictions_since(self, since: float, *, like: str = "", limit: int) -> list[Eviction]:
        """The newest evictions recorded since then, newest first, dry runs included. `like`: only those whose pod's
        `namespace/name` contains it."""
        rows = EVICTIONS.c
        which = rows.planned_at >= since
        if like:
            which &= (rows.namespace + "/" + rows.pod).contains(like, autoescape=True)
        return self._evictions(which, limit)

    def eviction_totals(self, since: float) -> EvictionTotals:
        """Counts of the evictions recorded since then, in one row."""
        rows = EVICTIONS.c
        happened = (rows.dry_run == false()) & rows.outcome.in_(MAY_HAVE_HAPPENED)
        in_flight = happened & rows.replaced_at.is_(None) & rows.closed_at.is_(None)
        query = select(
            func.count().filter(happened),
            func.count().filter(happened & rows.replaced_at.is_not(None)),
            func.count().filter(in_flight),
            func.count().filter(in_flight & (rows.late == true())),
            func.min(rows.planned_at).filter(in_flight),
            func.count(rows.uid.distinct()).filter(rows.dry_run == true()),
        ).where(rows.cluster == self._cluster, rows.planned_at >= since)
        return EvictionTotals._make(read(self._engine, lambda connection: connection.execute(query).one()))

    def pool_evictions(self, since: float, *, limit: int) -> list[PoolEviction]:
        """The newest evictions since then that happened, or may have, oldest first."""
        rows = EVICTIONS.c
        query = (
            select(rows.planned_at, rows.pool, rows.node, rows.namespace + "/" + rows.pod)
            .where(
                rows.cluster == self._cluster,
                rows.dry_run == false(),
                rows.outcome.in_(MAY_HAVE_HAPPENED),
                rows.planned_at >= since,
            )
            .order_by(rows.planned_at.desc(), rows.id.desc())
            .limit(limit)
        )
        found = read(self._engine, lambda connection: connection.execute(query).all())
        return [PoolEviction._make(row) for row in reversed(found)]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _evictions(self, which: ColumnElement[bool], limit: int) -> list[Eviction]:
        """The newest first; a pod that dry runs planned again and again is there once, by the newest."""
        rows = EVICTIONS.c
        which &= rows.cluster == self._cluster
        newest = select(func.max(rows.id)).where(which, rows.dry_run == true()).group_by(rows.uid, rows.node)
        query = (
            select(EVICTIONS, CYCLES.c.trigger)
            .join(CYCLES, CYCLES.c.id == rows.cycle)
            .where(which, or_(rows.dry_run == false(), rows.id.in_(newest)))
            .order_by(rows.planned_at.desc(), rows.id.desc())
            .limit(limit)
        )

        def work(connection: Connection) -> list[Eviction]:
            found = connection.execute(query).mappings().all()
            out = [read_eviction(row) for row in found]
            effects = self._effects(connection, min(each.reserved.planned_at for each in out)) if out else {}
            for each in out:
                # nothing came of an eviction that was not made
                each.effect = effects.get((each.reserved.cycle, each.node), "") if each.happened else ""
            return out

        return read(self._engine, work)

    def _effects(self, connection: Connection, since: float) -> Mapping[tuple[str, str], str]:
        """(cycle, node) -> outcome of the assessment after settling, where that is known."""
        rows = ASSESSMENTS.c
        query = select(rows.cycle, rows.node, rows.outcome).where(
            rows.cluster == self._cluster,
            rows.last_eviction_at >= since,
            rows.step == Step.SETTLED.value,
            rows.outcome.is_not(None),
            rows.outcome != Effect.UNKNOWN.value,
        )
        return {(row.cycle, row.node): row.outcome for row in connection.execute(query)}

    def _since(self, since: float) -> tuple[ColumnElement[bool], ...]:
        return CYCLES.c.cluster == self._cluster, CYCLES.c.started_at >= since


def _is_no_cause(each: RefusalGroup) -> bool:
    """Whether these pods stay because the plan needs no more: the least that a reader looks for."""
    return each.code == Reason.GOAL_REACHED


def _by_cause(each: RefusalGroup) -> tuple[str, bool, int, str]:
    return each.node, _is_no_cause(each), -each.count, each.code


def outcomes_of(connection: Connection, cycles: Sequence[str]) -> Mapping[str, dict[str, int]]:
    """Cycle -> outcome -> evictions."""
    rows = EVICTIONS.c
    query = select(rows.cycle, rows.outcome, func.count()).where(rows.cycle.in_(cycles))
    out: dict[str, dict[str, int]] = defaultdict(dict)
    for cycle, outcome, count in connection.execute(query.group_by(rows.cycle, rows.outcome).order_by(rows.outcome)):
        out[cycle][outcome] = count
    return out


def _summary(row: RowMapping, outcomes: Mapping[str, int]) -> CycleSummary:
    same = ("id", "trigger", "dry_run", "started_at", "finished_at", "version")
    counts = ("nodes", "hot_nodes", "findings", "refusals", "hot_node_minutes", "price")
    return CycleSummary(
        **{name: row[name] for name in (*same, *counts)},
        outcomes=outcomes,
        stopped=row["stopped_message"] or "",
        notes=tuple(row["notes"]),
    )


def _finding(row: RowMapping, *, at: float) -> RecordedFinding:
    same = ("cycle", "node", "strategy", "high", "target", "reason")
    shares = {"share": row["cpu_share"], "resource": row["resource"] or CPU}
    return RecordedFinding(at=at, **shares, **{name: row[name] for name in same})


def _refusals(row: RowMapping, *, at: float, cycles: int = 1) -> RefusalGroup:
    return RefusalGroup(
        node=row["node"],
        code=row["code"],
        count=row["count"],
        examples=tuple(
            RefusalExample(
                pod=f"{each['namespace']}/{each['pod']}" if each["pod"] else "",
                message=each["message"],
                cpu_millicores=each.get("cpu_millicores"),
            )
            for each in row["examples"]
        ),
        cycle=row["cycle"],
        at=at,
        cycles=cycles,
    )


def _measurements(cycle: str, at: float, measured: NodeMeasurements) -> Iterable[PoolMeasurement]:
    """One a pool: its nodes may have several thresholds."""
    pools: dict[str, list[float | None]] = defaultdict(list)
    for pool, _, nodes in measured:
        pools[pool] += nodes.values()
    for pool, shares in pools.items():
        hottest = max((share for share in shares if share is not None), default=None)
        yield PoolMeasurement(cycle=cycle, at=at, pool=pool, nodes=len(shares), hottest=hottest)


def _by_service(evictions: Iterable[RowMapping], effects: Mapping[tuple[str, str], str]) -> list[ServiceEvictions]:
    groups: dict[str, list[RowMapping]] = defaultdict(list)
    for each in evictions:
        groups[each["service"]].append(each)
    out = []
    for service, group in groups.items():
        known = [effects[key] for each in group if (key := (each["cycle"], each["node"])) in effects]
        landed = [each["replacement_node"] or each["target_node"] for each in group]
        out.append(
            ServiceEvictions(
                service=service,
                kind=group[0]["service_kind"],
                evictions=len(group),
                last_at=group[0]["planned_at"],
                returned=sum(each["replacement_node"] == each["node"] for each in group),
                late=sum(bool(each["late"]) for each in group),
                triggers=dict(Counter(each["trigger"] for each in group).most_common()),
                strategies=dict(Counter(each["strategy"] for each in group).most_common()),
                target_nodes=dict(Counter(name for name in landed if name).most_common()),
                effects=dict(Counter(known).most_common()),
            )
        )
    return sorted(out, key=lambda each: (-each.evictions, each.service))
