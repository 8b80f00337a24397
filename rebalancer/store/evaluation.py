"""Assessments, hot episodes, hours and daily counts of one cluster: implements `model.records.effect.EffectRecords`.

Details (assessments, episodes) are rows that retention drops by age; daily counts stay. No limit reads these rows. Rows
are written in the order of their keys, so two processes that write the same ones cannot deadlock.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Table,
    bindparam,
    exists,
    false,
    func,
    or_,
    select,
    update,
)

from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.eviction import COUNTED, Eviction
from rebalancer.model.decisions.eviction import Outcome as EvictionOutcome
from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import BlockedReason, MissReason
from rebalancer.model.records.effect import (
    Assessment,
    ChangeBreakdown,
    DayRow,
    HotEpisode,
    NodeObservation,
    Outcome,
    PodBefore,
    PoolHour,
    Step,
)
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.effect_tables import (
    ASSESSMENTS,
    EFFECT_DAYS,
    EFFECT_STATE,
    HOT_EPISODES,
    NODE_MEASUREMENTS,
    POOL_HOURS,
)
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CYCLES, EVICTIONS
from rebalancer.store.drains import drains_since
from rebalancer.store.ledger.rows import read_evictions
from rebalancer.store.node_observations import REASONS, read_node_observations

AT_ONCE = 1000
"""Rows fetched at once: a year has 90,000 hours."""

_HAPPENED = (EvictionOutcome.EVICTED.value, EvictionOutcome.UNKNOWN.value)
_IDENTITY = func.coalesce(EVICTIONS.c.service_identity, EVICTIONS.c.service)

_FOUND_LATER = ("assessed_at", "late", "after_share", "breakdown", "outcome", "detail", "pods")
"""Columns of an assessment that are written when it is made."""
_STORED = {"before": "before_millicores", "after": "after_millicores"}
"""Field of a breakdown -> its key in the column, which is older than resources."""
_READ = {key: name for name, key in _STORED.items()}
_HOUR = tuple(field.name for field in fields(PoolHour))
_DAY = tuple(field.name for field in fields(DayRow))


class SqlEffect:
    """See the module. Every method is one transaction of a few statements; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str) -> None:
        """The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster

    # -- assessments --------------------------------------------------------------------------------------------------

    def expect(self, assessments: Sequence[Assessment]) -> None:
        """Schedule assessments; an existing one is replaced unless it was made."""
        rows = [{"cluster": self._cluster, **_assessment_row(each)} for each in assessments]
        self._put(ASSESSMENTS, rows, ("cycle", "node", "step"), unless=ASSESSMENTS.c.assessed_at.is_not(None))

    def due(self, now: float) -> list[Assessment]:
        """Those due and not made, oldest first."""
        rows = ASSESSMENTS.c
        query = (
            select(ASSESSMENTS)
            .where(rows.cluster == self._cluster, rows.assessed_at.is_(None), rows.due_at <= now)
            .order_by(rows.due_at, rows.id)
        )
        return self._read(query, _assessment)

    def made(self, assessments: Sequence[Assessment]) -> None:
        """Write what was found, and drop what only the breakdown needed: pods that stayed.

        A missing row is ignored: it was pruned.
        """
        rows = ASSESSMENTS.c
        statement = update(ASSESSMENTS).where(
            rows.cluster == self._cluster,
            rows.cycle == bindparam("of_cycle"),
            rows.node == bindparam("of_node"),
            rows.step == bindparam("of_step"),
        )
        changes = []
        for each in assessments:
            row = _assessment_row(replace(each, pods=tuple(pod for pod in each.pods if pod.evicted)))
            key = {f"of_{name}": row[name] for name in ("cycle", "node", "step")}
            changes.append(key | {name: row[name] for name in _FOUND_LATER})
        changes.sort(key=lambda change: (change["of_cycle"], change["of_node"], change["of_step"]))
        if changes:
            write(self._engine, lambda connection: connection.execute(statement, changes))

    def assessments(
        self, since: float, until: float, *, node: str | None = None, step: Step | None = None
    ) -> list[Assessment]:
        """Made or not, of evictions from `since` up to, not including, `until`, oldest first; None = of all."""
        rows = ASSESSMENTS.c
        query = select(ASSESSMENTS).where(
            rows.cluster == self._cluster,
            rows.last_eviction_at >= since,
            rows.last_eviction_at < until,
            *_only(rows.node, node),
            *_only(rows.step, None if step is None else step.value),
        )
        return self._read(query.order_by(rows.last_eviction_at, rows.due_at, rows.id), _assessment)

    # -- episodes -----------------------------------------------------------------------------------------------------

    def node_observations(
        self, nodes: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[NodeObservation]]:
        """Node -> observations by cycles that began from `since` up to, not including, `until`, oldest first."""

        def work(connection: Connection) -> Mapping[str, Sequence[NodeObservation]]:
            return read_node_observations(connection, nodes, since, until, cluster=self._cluster)

        return read(self._engine, work)

    def nodes_before(self, at: float) -> Mapping[str, str]:
        """Node -> pool, of the nodes that the last cycle begun before `at` evaluated; without details of it, none."""
        query = (
            select(NODE_MEASUREMENTS.c.nodes)
            .join(CYCLES, CYCLES.c.id == NODE_MEASUREMENTS.c.cycle)
            .where(CYCLES.c.cluster == self._cluster, CYCLES.c.started_at < at)
            .order_by(CYCLES.c.started_at.desc())
            .limit(1)
        )
        measured = read(self._engine, lambda connection: connection.execute(query).scalar())
        return {node: pool for pool, _, nodes in measured or () for node in nodes}

    def drains(self, since: float) -> list[DrainedNode]:
        """Nodes emptied at or after `since`, oldest first."""
        return drains_since(self._engine, self._cluster, since)

    def eviction_counts(self, since: float, until: float) -> dict[tuple[str, str], int]:
        """(identity of a service, node) -> evictions that `moved` has."""
        node = EVICTIONS.c.node
        query = select(_IDENTITY, node, func.count()).where(*self._happened(since, until)).group_by(_IDENTITY, node)
        return {(row[0], row[1]): row[2] for row in read(self._engine, lambda c: c.execute(query).all())}

    def worth_of_plans(self, since: float, until: float) -> PlanScore | None:
        """The sum of the scores of the cycles that began in the span and evicted, dry runs apart; None where no cycle
        has one."""
        rows = CYCLES.c
        query = select(func.sum(rows.hot_node_minutes), func.sum(rows.price)).where(
            rows.cluster == self._cluster,
            rows.dry_run == false(),
            rows.started_at >= since,
            rows.started_at < until,
            rows.price.is_not(None),
            # where all parts wait for an approval, the score is of evictions that were not made
            exists().where(
                EVICTIONS.c.cycle == rows.id, EVICTIONS.c.dry_run == false(), EVICTIONS.c.outcome.in_(_HAPPENED)
            ),
        )
        minutes, price = read(self._engine, lambda c: c.execute(query).one())
        return None if price is None else PlanScore(hot_node_minutes=minutes or 0.0, price=price)

    def moved(self, since: float, until: float, *, services: Collection[str] | None = None) -> list[Eviction]:
        """Evictions that happened or may have, planned from `since` up to, not including, `until`, oldest first; of
        the services with these identities, None = of all."""
        rows = EVICTIONS.c
        query = (
            select(
                rows.service,
                _IDENTITY.label("service_identity"),
                rows.node,
                rows.cycle,
                CYCLES.c.trigger,
                *(rows[name] for name in COUNTED.values() if name in rows),
            )
            .join(CYCLES, CYCLES.c.id == rows.cycle)
            .where(*self._happened(since, until))
            .order_by(rows.planned_at, rows.id)
        )
        return read_evictions(self._engine, query if services is None else query.where(_IDENTITY.in_(sorted(services))))

    def _happened(self, since: float, until: float) -> tuple[ColumnElement[bool], ...]:
        rows = EVICTIONS.c
        return (
            rows.cluster == self._cluster,
            rows.dry_run == false(),
            rows.outcome.in_(_HAPPENED),
            rows.planned_at >= since,
            rows.planned_at < until,
        )

    def put_episodes(self, episodes: Sequence[HotEpisode]) -> None:
        """New, or the same (node, started_at) with more known."""
        rows = [{"cluster": self._cluster, **_episode_row(each)} for each in episodes]
        self._put(HOT_EPISODES, rows, ("cluster", "node", "started_at"))

    def episodes(self, since: float, until: float, *, node: str | None = None) -> list[HotEpisode]:
        """Those that were hot at any time from `since` up to, not including, `until`, by their start."""
        rows = HOT_EPISODES.c
        query = select(HOT_EPISODES).where(
            rows.cluster == self._cluster,
            rows.started_at < until,
            or_(rows.ended_at.is_(None), rows.ended_at >= since),
            *_only(rows.node, node),
        )
        return self._read(query.order_by(rows.started_at, rows.node), _episode)

    # -- the whole cluster --------------------------------------------------------------------------------------------

    def slo_evaluated_until(self) -> float | None:
        """Up to when the hot-node SLO was evaluated; None = never."""
        query = select(EFFECT_STATE.c.slo_evaluated_until).where(EFFECT_STATE.c.cluster == self._cluster)
        at: float | None = read(self._engine, lambda connection: connection.execute(query).scalar())
        return at

    def put_hours(self, hours: Sequence[PoolHour], *, read_until: float) -> None:
        """New, or the same (pool, hour) updated; and how far the hot-node SLO was evaluated."""
        rows = sorted(
            ({"cluster": self._cluster, **_fields(each)} for each in hours), key=lambda row: (row["hour"], row["pool"])
        )

        def work(connection: Connection) -> None:
            _upsert(connection, POOL_HOURS, rows, ("cluster", "hour", "pool"))
            state = {"cluster": self._cluster, "slo_evaluated_until": read_until}
            _upsert(connection, EFFECT_STATE, [state], ("cluster",))

        write(self._engine, work)

    def hours(self, since: float, until: float) -> list[PoolHour]:
        """Those that the span from `since` up to, not including, `until` touches, oldest first."""
        rows = POOL_HOURS.c
        first, end = math.floor(since / HOUR_SECONDS), math.ceil(until / HOUR_SECONDS)
        query = (
            select(*(rows[name] for name in _HOUR))
            .where(rows.cluster == self._cluster, rows.hour >= first, rows.hour < end)
            .order_by(rows.hour, rows.pool)
        )
        return self._read(query, _hour)

    # -- a day's counts -----------------------------------------------------------------------------------------------

    def roll_up(self, rows: Sequence[DayRow]) -> None:
        """Replace the rows of the same pool, strategy, trigger and day. Raises ValueError for another cluster's."""
        if strange := [row.cluster for row in rows if row.cluster != self._cluster]:
            raise ValueError(f"a day of {strange[0]} among those of {self._cluster}")
        self._put(EFFECT_DAYS, [_day_row(row) for row in rows], ("cluster", "day", "pool", "strategy", "trigger"))

    def days(self, since_day: int, until_day: int, *, clusters: Sequence[str] | None = None) -> list[DayRow]:
        """From `since_day` up to, not including, `until_day`, oldest first; of this cluster, or of those named."""
        rows = EFFECT_DAYS.c
        query = select(*(rows[name] for name in _DAY)).where(
            rows.cluster.in_([self._cluster] if clusters is None else list(clusters)),
            rows.day >= since_day,
            rows.day < until_day,
        )
        order = (rows.day, rows.cluster, rows.pool, rows.strategy, rows.trigger)
        return self._read(query.order_by(*order), _day)

    def keeps_details(self) -> float | None:
        """The cluster's detail retention in seconds; None = not stated yet."""
        query = select(EFFECT_STATE.c.detail_retention_seconds).where(EFFECT_STATE.c.cluster == self._cluster)
        seconds: float | None = read(self._engine, lambda connection: connection.execute(query).scalar())
        return seconds

    # -- inside -------------------------------------------------------------------------------------------------------

    def _read(self, query: Any, build: Callable[[Row[Any]], Any]) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            return [build(row) for some in connection.execute(query).partitions(AT_ONCE) for row in some]

        return read(self._engine, work)

    def _put(self, table: Table, rows: list[dict[str, Any]], key: tuple[str, ...], *, unless: Any = None) -> None:
        rows.sort(key=lambda row: tuple(row[name] for name in key))
        if rows:
            write(self._engine, lambda connection: _upsert(connection, table, rows, key, unless=unless))


def _upsert(
    connection: Connection, table: Table, rows: list[dict[str, Any]], key: tuple[str, ...], *, unless: Any = None
) -> None:
    if not rows:
        return
    statement = upsert(connection)(table)
    changes = {name: statement.excluded[name] for name in rows[0] if name not in key}
    where = None if unless is None else ~unless
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=changes, where=where), rows)


def _only(column: Any, value: str | None) -> tuple[Any, ...]:
    return () if value is None else (column == value,)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _assessment_row(each: Assessment) -> dict[str, Any]:
    row = _fields(each)
    del row["id"]
    row["capacity_millicores"] = row.pop("capacity")
    breakdown = None
    if each.breakdown is not None:
        breakdown = {_STORED.get(key, key): _or_none(value) for key, value in asdict(each.breakdown).items()}
    pods = [[pod.uid, pod.pod, _or_none(pod.amount), pod.evicted] for pod in each.pods]
    return row | {
        "step": each.step.value,
        "pods": pods,
        "breakdown": breakdown,
        "outcome": None if each.outcome is None else each.outcome.value,
    }


def _assessment(row: Row[Any]) -> Assessment:
    values = row._asdict()
    del values["cluster"]
    values["capacity"] = values.pop("capacity_millicores")
    values["resource"] = row.resource or CPU
    breakdown = row.breakdown and ChangeBreakdown(
        **{_READ.get(key, key): _or_nan(value) for key, value in row.breakdown.items()}
    )
    for name in ("before_share", "planned_share", "target", "high", "capacity"):
        values[name] = _or_nan(values[name])
    values |= {
        "step": Step(row.step),
        "pods": tuple(
            PodBefore(uid=uid, pod=pod, amount=_or_nan(amount), evicted=evicted)
            for uid, pod, amount, evicted in row.pods
        ),
        "breakdown": breakdown,
        "outcome": None if row.outcome is None else Outcome(row.outcome),
    }
    return Assessment(**values)


def _episode_row(each: HotEpisode) -> dict[str, Any]:
    row = _fields(each)
    del row["id"]
    return row | {
        "miss_reason": None if each.miss_reason is None else each.miss_reason.value,
        "blocked_reason": None if each.blocked_reason is None else each.blocked_reason.value,
        "codes": None if each.codes is None else {code.value: count for code, count in each.codes.items()},
    }


def _episode(row: Row[Any]) -> HotEpisode:
    values = row._asdict()
    del values["cluster"]
    known = None if row.codes is None else {REASONS[code]: n for code, n in row.codes.items() if code in REASONS}
    values |= {
        "peak_share": _or_nan(row.peak_share),
        "threshold": _or_nan(row.threshold),
        "miss_reason": None if row.miss_reason is None else MissReason(row.miss_reason),
        "blocked_reason": None if row.blocked_reason is None else BlockedReason(row.blocked_reason),
        "codes": known,
    }
    return HotEpisode(**values)


def _hour(row: Row[Any]) -> PoolHour:
    known = map(_or_nan, row) if None in row else row
    return PoolHour(**dict(zip(_HOUR, known, strict=True)))


def _day_row(row: DayRow) -> dict[str, Any]:
    return _fields(row) | {"reasons": None if row.reasons is None else dict(row.reasons)}


def _day(row: Row[Any]) -> DayRow:
    values = dict(zip(_DAY, row, strict=True))
    for name in ("relief_planned", "relief_measured", "hot_node_minutes"):
        values[name] = _or_nan(values[name])
    for name in ("nodes_emptied", "nodes_removed", "nodes_in_vain", "core_hours_saved"):
        values[name] = values[name] or 0
    return DayRow(**values)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_nan(value: Any) -> Any:
    return math.nan if value is None else value
