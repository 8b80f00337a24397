"""What the dashboard reads of one cluster, as plain dicts like those of `history`.

Every method is one transaction of a few statements that only read. Each is bounded, by a number of rows or by a span of
time in which an index finds them: a page must not wait for a year of records.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, exists, func, select

from rebalancer.model.effect import Outcome as Effect
from rebalancer.model.effect import Step
from rebalancer.model.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.forecasts import ForecastKind
from rebalancer.store.cycles import history
from rebalancer.store.db.effect_tables import ASSESSMENTS
from rebalancer.store.db.engine import read
from rebalancer.store.db.tables import CYCLES, EVICTIONS, FINDINGS, FORECASTS, REFUSALS
from rebalancer.store.ledger.rows import read_eviction

MOST_MOVES = 50_000
"""Of one look at the services: a cluster that evicts 200 pods a day makes 18,000 in a quarter."""

_IN_FLIGHT = (
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
    ) -> list[dict[str, Any]]:
        """Cycles that began before `before`, newest first, each with `outcomes`: outcome -> evictions.

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

        def work(connection: Connection) -> list[dict[str, Any]]:
            found = _dicts(connection, query.limit(limit))
            found.sort(key=lambda cycle: (cycle["started_at"], cycle["id"]), reverse=True)
            outcomes = _outcomes(connection, [cycle["id"] for cycle in found])
            return [cycle | {"outcomes": outcomes.get(cycle["id"], {})} for cycle in found]

        return read(self._engine, work)

    def cycle(self, cycle: str) -> dict[str, Any] | None:
        """A cycle of this cluster as `history.cycle_report` has it, `evictions` as records; None if there is none."""

        def work(connection: Connection) -> dict[str, Any] | None:
            found = history.cycle_report(connection, cycle=cycle)
            if found is None or found["cycle"]["cluster"] != self._cluster:
                return None
            outcomes = Counter(each["outcome"] for each in found["evictions"])
            evictions = [read_eviction({**row, "trigger": found["cycle"]["trigger"]}) for row in found["evictions"]]
            return found | {"cycle": found["cycle"] | {"outcomes": dict(outcomes)}, "evictions": evictions}

        return read(self._engine, work)

    # -- one node -----------------------------------------------------------------------------------------------------

    def moves_from(self, node: str, *, limit: int) -> list[Eviction]:
        """The newest evictions from a node, newest first, dry ones too."""
        return self._moves(EVICTIONS.c.node == node, limit)

    def findings_of(self, node: str, *, since: float, limit: int) -> list[dict[str, Any]]:
        """The newest findings of a node by cycles that began at or after `since`, each with that cycle's `at`."""
        query = (
            select(FINDINGS, CYCLES.c.started_at.label("at"))
            .join(CYCLES, CYCLES.c.id == FINDINGS.c.cycle)
            .where(*self._since(since), FINDINGS.c.node == node)
            .order_by(CYCLES.c.started_at.desc(), FINDINGS.c.id)
            .limit(limit)
        )
        return read(self._engine, lambda connection: _dicts(connection, query))

    def refusals_of(self, node: str, *, since: float) -> list[dict[str, Any]]:
        """Per code: `code`, `cycles` that refused for it since then, and of the newest of these `cycle`, `at`, `count`,
        `examples`. The newest first."""
        query = (
            select(REFUSALS, CYCLES.c.started_at.label("at"))
            .join(CYCLES, CYCLES.c.id == REFUSALS.c.cycle)
            .where(*self._since(since), REFUSALS.c.node == node)
            .order_by(CYCLES.c.started_at.desc(), REFUSALS.c.id)
        )
        newest: dict[str, dict[str, Any]] = {}
        for row in read(self._engine, lambda connection: _dicts(connection, query)):
            kept = newest.setdefault(row["code"], row | {"cycles": 0})
            kept["cycles"] += 1
        return list(newest.values())

    # -- forecasts ----------------------------------------------------------------------------------------------------

    def expected_peaks(self, now: float) -> list[dict[str, Any]]:
        """The newest daily forecast of each node whose peak is still to come: all that a follower knows."""
        rows = FORECASTS.c
        query = (
            select(rows.node, rows.peak_millicores, rows.peak_at, rows.made_at)
            .where(
                rows.cluster == self._cluster,
                rows.kind == ForecastKind.DAILY.value,
                rows.evaluated_at.is_(None),
                rows.until > now,
                rows.peak_at > now,
            )
            .order_by(rows.made_at)
        )
        return list({row["node"]: row for row in read(self._engine, lambda at: _dicts(at, query))}.values())

    # -- services -----------------------------------------------------------------------------------------------------

    def services(self, since: float, *, like: str = "") -> list[dict[str, Any]]:
        """Services that lost pods since then, those that lost most first. Of each: `service`, `kind`, `moves`,
        `last_at`, `came_back`, `late`, and how many by what: `triggers`, `strategies`, `landings` (where its
        replacement was seen, or else is expected) and `effects` (what came of the node after settling).

        No dry runs. `like`: only those whose name contains it.
        """
        rows = EVICTIONS.c
        query = (
            select(*_IN_FLIGHT, CYCLES.c.trigger)
            .join(CYCLES, CYCLES.c.id == rows.cycle)
            .where(*self._happened(), rows.planned_at >= since)
            .order_by(rows.planned_at.desc(), rows.id.desc())
            .limit(MOST_MOVES)
        )
        if like:
            query = query.where(rows.service.contains(like, autoescape=True))

        def work(connection: Connection) -> list[dict[str, Any]]:
            return _by_service(_dicts(connection, query), self._effects(connection, since))

        return read(self._engine, work)

    def moves_of(self, service: str, *, limit: int) -> list[Eviction]:
        """The newest evictions of a service (`namespace/name`), newest first, dry ones too."""
        return self._moves(EVICTIONS.c.service == service, limit)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _moves(self, which: ColumnElement[bool], limit: int) -> list[Eviction]:
        rows = EVICTIONS.c
        query = (
            select(EVICTIONS, CYCLES.c.trigger)
            .join(CYCLES, CYCLES.c.id == rows.cycle)
            .where(rows.cluster == self._cluster, which)
            .order_by(rows.planned_at.desc(), rows.id.desc())
            .limit(limit)
        )

        def work(connection: Connection) -> list[Eviction]:
            found = [read_eviction(row) for row in connection.execute(query).mappings()]
            since = min((each.planned_at for each in found), default=0.0)
            effects = self._effects(connection, since) if found else {}
            for each in found:
                each.effect = effects.get((each.cycle, each.node), "")
            return found

        return read(self._engine, work)

    def _effects(self, connection: Connection, since: float) -> Mapping[tuple[str, str], str]:
        """(cycle, node) -> what came of it after settling, where that is known."""
        rows = ASSESSMENTS.c
        query = select(rows.cycle, rows.node, rows.outcome).where(
            rows.cluster == self._cluster,
            rows.last_eviction_at >= since,
            rows.step == Step.SETTLED.value,
            rows.outcome.is_not(None),
            rows.outcome != Effect.UNKNOWN.value,
        )
        return {(row.cycle, row.node): row.outcome for row in connection.execute(query)}

    def _happened(self) -> tuple[ColumnElement[bool], ...]:
        rows = EVICTIONS.c
        return rows.cluster == self._cluster, rows.dry_run.is_(False), rows.outcome.in_(MAY_HAVE_HAPPENED)

    def _since(self, since: float) -> tuple[ColumnElement[bool], ...]:
        return CYCLES.c.cluster == self._cluster, CYCLES.c.started_at >= since


def _by_service(moves: Iterable[Mapping[str, Any]], effects: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for move in moves:
        groups[move["service"]].append(move)
    out = []
    for service, group in groups.items():
        known = [effects[key] for each in group if (key := (each["cycle"], each["node"])) in effects]
        landed = [each["replacement_node"] or each["target_node"] for each in group]
        out.append(
            {
                "service": service,
                "kind": group[0]["service_kind"],
                "moves": len(group),
                "last_at": group[0]["planned_at"],
                "came_back": sum(each["replacement_node"] == each["node"] for each in group),
                "late": sum(bool(each["late"]) for each in group),
                "triggers": dict(Counter(each["trigger"] for each in group).most_common()),
                "strategies": dict(Counter(each["strategy"] for each in group).most_common()),
                "landings": dict(Counter(name for name in landed if name).most_common()),
                "effects": dict(Counter(known).most_common()),
            }
        )
    return sorted(out, key=lambda each: (-each["moves"], each["service"]))


def _outcomes(connection: Connection, cycles: Sequence[str]) -> dict[str, dict[str, int]]:
    """Cycle -> outcome -> evictions."""
    rows = EVICTIONS.c
    query = select(rows.cycle, rows.outcome, func.count()).where(rows.cycle.in_(cycles))
    out: dict[str, dict[str, int]] = defaultdict(dict)
    for cycle, outcome, count in connection.execute(query.group_by(rows.cycle, rows.outcome)):
        out[cycle][outcome] = count
    return out


def _dicts(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]
