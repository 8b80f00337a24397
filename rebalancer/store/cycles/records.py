"""The records of one cluster's cycles: the adapter behind `model.decisions.ports.Records`.

What makes a crash harmless is the order: `planned` has committed before the eviction is called, `outcome` is written
after. A row that a dead process left as planned counts as "may have happened" until it is reconciled.
Nothing is kept in memory, so several threads may use one `SqlRecords`.
"""

import math
import uuid
from collections.abc import Collection, Sequence
from heapq import nlargest
from typing import Any

from sqlalchemy import Connection, Engine, delete, false, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from rebalancer import __version__
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.past import RequestedSample
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal, PodRefusal
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import UnsafeDataError
from rebalancer.store.cycles.reading import SqlReading
from rebalancer.store.db.effect_tables import EFFECT_STATE, NODE_MEASUREMENTS, pack_node_measurements
from rebalancer.store.db.engine import last_write_problem, open_engine, read, shown_url, write
from rebalancer.store.db.migrate import check_schema
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, EVICTIONS, FINDINGS, LEDGER, REFUSALS
from rebalancer.store.drains import drains_since, put_drains
from rebalancer.store.evaluation import SqlEffect
from rebalancer.store.forecasts import SqlForecasts
from rebalancer.store.inbox import SqlInbox
from rebalancer.store.ledger.ledger import SqlLedger
from rebalancer.store.ledger.rows import add_eviction, answered, change_eviction, read_evictions
from rebalancer.store.outcomes import SqlOutcomes
from rebalancer.store.proposals import SqlProposals
from rebalancer.store.requested import put_requested, requested_since
from rebalancer.store.surges import SqlSurges

EXAMPLES_KEPT = 3
OTHERS_KEPT = 500
"""Of one cycle, so many findings that aren't hot nodes, and so many groups of refusals that aren't about one."""

# No eviction call outlives it: a row planned earlier than this before a moment was answered before that moment.
_LONGEST_CALL_SECONDS = 600.0


def open_records(*, url: str, cluster: str, clock: Clock) -> "SqlRecords":
    """Open the database at `url`, whose schema must be current. The caller closes the records.

    Raises ConfigError, ConnectError.
    """
    engine = open_engine(url)
    try:
        check_schema(engine)
    except BaseException:
        engine.dispose()
        raise
    return SqlRecords(engine=engine, cluster=cluster, clock=clock)


class SqlRecords:
    """Cycles and evictions of `cluster`. Every method is one short transaction; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock) -> None:
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> "SqlRecords":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clusters(self) -> list[str]:
        """Those of which anything can be reported, by name; this one may not be among them."""
        named = select(EFFECT_STATE.c.cluster)
        return read(self._engine, lambda connection: sorted(connection.execute(named).scalars()))

    def of(self, cluster: str) -> "SqlRecords":
        """Those of another cluster in the same database, over the same connections."""
        return SqlRecords(engine=self._engine, cluster=cluster, clock=self._clock)

    def ledger(self, *, clock: Clock | None = None) -> SqlLedger:
        """The ledger of the same cluster, over the same connections. See `SqlLedger` for `clock`."""
        return SqlLedger(engine=self._engine, cluster=self._cluster, clock=clock)

    def inbox(self, *, clock: Clock | None = None) -> SqlInbox:
        """The alerts of the same cluster, over the same connections. See `SqlInbox` for `clock`."""
        return SqlInbox(engine=self._engine, cluster=self._cluster, clock=clock)

    def proposals(self, *, clock: Clock | None = None) -> SqlProposals:
        """The proposals of the same cluster, over the same connections. See `SqlProposals` for `clock`."""
        return SqlProposals(engine=self._engine, cluster=self._cluster, clock=clock)

    def surges(self, *, clock: Clock | None = None) -> SqlSurges:
        """The cluster's evictions whose replacement comes first; `clock` as in `ledger`."""
        return SqlSurges(engine=self._engine, cluster=self._cluster, clock=clock)

    def forecasts(self) -> SqlForecasts:
        """The forecasts of the same cluster, over the same connections."""
        return SqlForecasts(engine=self._engine, cluster=self._cluster, clock=self._clock)

    def outcomes(self) -> SqlOutcomes:
        """The outcomes of the same cluster's forecasts, over the same connections."""
        return SqlOutcomes(engine=self._engine, cluster=self._cluster, clock=self._clock)

    def effect(self) -> SqlEffect:
        """Assessments, episodes and daily counts of the same cluster, over the same connections."""
        return SqlEffect(engine=self._engine, cluster=self._cluster)

    def reading(self) -> SqlReading:
        """What the dashboard reads of the same cluster, over the same connections."""
        return SqlReading(engine=self._engine, cluster=self._cluster)

    # -- one cycle ----------------------------------------------------------------------------------------------------

    def begin(self, report: CycleReport) -> None:
        """Write that the cycle runs. An id that was used before is a mistake of the caller (IntegrityError)."""
        row = {
            "id": report.id,
            "cluster": self._cluster,
            "trigger": report.trigger.value,
            "dry_run": report.dry_run,
            "started_at": report.started_at,
            "version": __version__,
            "notes": list(report.notes),
        }
        write(self._engine, lambda connection: connection.execute(insert(CYCLES).values(row)))

    def begun(self, cycle: str) -> float | None:
        """When the cycle of this id began, in seconds since the epoch, in whichever cluster; None where there is
        none."""
        query = select(CYCLES.c.started_at).where(CYCLES.c.id == cycle)
        return read(self._engine, lambda connection: connection.execute(query).scalar())

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        """Write the eviction before its call; the row's id, for `eviction.record`. It has committed on return.

        It counts in no limit: this is for dry runs, and `SqlLedger.reserve` for the others.
        """

        def work(connection: Connection) -> int:
            return add_eviction(connection, report, eviction, cluster=self._cluster, at=self._clock.now())

        return write(self._engine, work)

    def outcome(self, eviction: Eviction) -> None:
        """Write what the call came to, into the row `eviction.record`; what did not happen is refunded.

        Raises UnsafeDataError when the row is not there (any more).
        """
        if eviction.reserved.record is None:
            raise ValueError("an outcome without its planned row")
        self._update(eviction.reserved.record, **answered(eviction, at=self._clock.now()))

    def finish(self, report: CycleReport) -> None:
        """Write what the cycle saw, found and refused, and that it is over.

        May be called again for the same cycle, say when the nodes have been measured afterwards: the newer report
        replaces the older. Evictions are not touched.
        """
        nodes = [
            {
                "cycle": report.id,
                "node": line.name,
                "pool": line.pool,
                "cpu_before": line.cpu_before,
                "cpu_planned": line.cpu_planned,
                "cpu_after": line.cpu_after,
                "hot": line.hot,
                "high": line.high,
            }
            for line in report.nodes
            # the others were neither hot nor changed: their measured share is in `node_measurements`
            if line.hot or line.changed
        ]
        findings = [
            {
                "cycle": report.id,
                "node": node,
                "pool": finding.pool,
                "strategy": finding.strategy,
                "resource": finding.resource,
                "cpu_share": finding.cpu_share,
                "high": finding.high,
                "target": finding.target,
                "reason": finding.reason,
                "others": [[each.resource, each.share, each.high, each.target] for each in finding.others] or None,
            }
            for finding, node in kept_findings(report)
        ]
        cooled = {node for finding, node in report.findings if finding.goal is Goal.COOL}
        refusals = [{"cycle": report.id, **group} for group in group_refusals(report.refusals, cooled)]
        measured = pack_node_measurements(report.nodes)
        measurements = [{"cycle": report.id, "nodes": measured}] if measured else []
        cycle = {
            "finished_at": self._clock.now() if report.finished_at is None else report.finished_at,
            "stopped_code": report.stopped.code.value if report.stopped else None,
            "stopped_message": report.stopped.message if report.stopped else None,
            "notes": list(report.notes),
            "nodes": len(report.nodes),
            "hot_nodes": sum(line.hot for line in report.nodes),
            "findings": len(report.findings),
            "evictions": len(report.evictions),
            "refusals": len(report.refusals),
            "hot_node_minutes": None if report.score is None else report.score.hot_node_minutes,
            "price": None if report.score is None else report.score.price,
        }

        def work(connection: Connection) -> None:
            changed = connection.execute(update(CYCLES).where(CYCLES.c.id == report.id).values(cycle))
            if changed.rowcount != 1:
                raise UnsafeDataError(f"{self._shown}: cycle {report.id} is not in the database any more")
            for table, rows in (
                (CYCLE_NODES, nodes),
                (NODE_MEASUREMENTS, measurements),
                (FINDINGS, findings),
                (REFUSALS, refusals),
            ):
                connection.execute(delete(table).where(table.c.cycle == report.id))
                if rows:
                    connection.execute(insert(table), rows)

        write(self._engine, work)

    def recent_moves(self, since: float) -> list[Eviction]:
        """Evictions of this cluster that happened, or may have, at or after `since`; oldest first. No dry runs."""
        rows = EVICTIONS.c
        query = (
            select(EVICTIONS)
            .where(
                rows.cluster == self._cluster,
                rows.dry_run == false(),
                rows.outcome.in_(MAY_HAVE_HAPPENED),
                rows.planned_at >= since - _LONGEST_CALL_SECONDS,
                or_(rows.planned_at >= since, rows.answered_at >= since),
            )
            .order_by(func.coalesce(rows.answered_at, rows.planned_at), rows.id)
        )
        return read_evictions(self._engine, query)

    def drains(self, since: float) -> list[DrainedNode]:
        """Nodes emptied at or after `since`, oldest first."""
        return drains_since(self._engine, self._cluster, since)

    def put_drains(self, drains: Sequence[DrainedNode]) -> None:
        """New, or the same (node, emptied_at) updated."""
        put_drains(self._engine, self._cluster, drains)

    def requested(self, since: float) -> list[RequestedSample]:
        """What pods requested on nodes at or after `since`, oldest first."""
        return requested_since(self._engine, self._cluster, since)

    def put_requested(self, sample: RequestedSample) -> None:
        """A sample; those that are older or newer than any strategy reads are dropped."""
        put_requested(self._engine, self._cluster, sample)

    @property
    def write_problem(self) -> str:
        """Why the last write over these connections failed; empty = it worked. Nothing is read."""
        return last_write_problem(self._engine)

    def attempt_write(self) -> None:
        """Write what is there already: it ends `write_problem` when it works."""
        write(self._engine, lambda connection: connection.execute(update(LEDGER).values(pruned=LEDGER.c.pruned)))

    def ledger_identity(self) -> str:
        """Which ledger this is: a UUID, made once for each database."""

        def get(connection: Connection) -> str | None:
            found = connection.execute(select(LEDGER.c.identity)).scalar_one_or_none()
            return None if found is None else str(found)

        def make(connection: Connection) -> str:
            if (there := get(connection)) is not None:
                return there
            made = uuid.uuid4()
            connection.execute(insert(LEDGER).values(id=1, identity=made, created=self._clock.now()))
            return str(made)

        if (identity := read(self._engine, get)) is not None:
            return identity
        try:
            return write(self._engine, make)
        except IntegrityError:
            # another process was faster; now it is there
            return write(self._engine, make)

    @property
    def _shown(self) -> str:
        return shown_url(self._engine.url)

    def _update(self, record: int, **values: object) -> None:
        write(self._engine, lambda connection: change_eviction(connection, record, cluster=self._cluster, **values))


def kept_findings(report: CycleReport) -> list[tuple[Finding, str]]:
    """Every node to be cooled; of the others, which may be thousands in each cycle, the most urgent."""
    others = 0
    kept = []
    for finding, node in report.findings:
        others += finding.goal is not Goal.COOL
        if finding.goal is Goal.COOL or others <= OTHERS_KEPT:
            kept.append((finding, node))
    return kept


def group_refusals(refusals: Sequence[PodRefusal], cooled: Collection[str]) -> list[dict[str, Any]]:
    """Per node and code: `node`, `code`, `count`, as `examples` those with most CPU; in the order of their first.

    Of nodes that weren't to be `cooled` pods' refusals may be thousands of groups in each cycle: past a limit they are
    counted by code alone, with no node.
    """
    groups: dict[tuple[str, str], list[PodRefusal]] = {}
    others = 0
    for refusal in refusals:
        key = (refusal.node, refusal.code.value)
        if key not in groups and refusal.name and refusal.node not in cooled:
            if others >= OTHERS_KEPT:
                key = ("", refusal.code.value)
            others += key not in groups and bool(key[0])
        groups.setdefault(key, []).append(refusal)
    return [
        {
            "node": node,
            "code": code,
            "count": len(group),
            "examples": [_example(each) for each in nlargest(EXAMPLES_KEPT, group, key=_cpu)],
        }
        for (node, code), group in groups.items()
    ]


def _example(refusal: PodRefusal) -> dict[str, Any]:
    example: dict[str, Any] = {"namespace": refusal.namespace, "pod": refusal.name, "message": refusal.message}
    return example if _cpu(refusal) < 0 else example | {"cpu_millicores": refusal.cpu_millicores}


def _cpu(refusal: PodRefusal) -> float:
    cpu = refusal.cpu_millicores
    return -1.0 if cpu is None or not math.isfinite(cpu) else cpu
