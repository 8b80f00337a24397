"""Node observations: what each cycle measured and decided about single nodes, over a span of time.

The measured shares of all nodes are one packed row per cycle in `node_measurements`: as rows of `cycle_nodes`, two days
of 5,000 nodes would be millions. Retention unpacks those of longer interest into `cycle_nodes`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason
from rebalancer.model.records.effect import NodeObservation
from rebalancer.store.db.effect_tables import NODE_MEASUREMENTS, unpack_node_measurements
from rebalancer.store.db.tables import CYCLE_NODES, CYCLES, EVICTIONS, FINDINGS, REFUSALS

AT_ONCE = 10_000
"""Nodes in one statement: SQLite takes 32,766 parameters, PostgreSQL 65,535."""

REASONS = {each.value: each for each in Reason}
"""Codes that this version knows: a row may have been written by another."""


def read_node_observations(
    connection: Connection, nodes: Sequence[str], since: float, until: float, *, cluster: str
) -> dict[str, list[NodeObservation]]:
    """Node -> its observation by each cycle of `cluster` that began in the span, oldest first; six statements."""
    within = (CYCLES.c.cluster == cluster, CYCLES.c.started_at >= since, CYCLES.c.started_at < until)
    query = select(CYCLES).where(*within).order_by(CYCLES.c.started_at, CYCLES.c.id)
    cycles = connection.execute(query).all() if nodes else []
    observed: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    wanted = sorted(set(nodes))
    for start in range(0, len(wanted) if cycles else 0, AT_ONCE):
        _read(connection, wanted[start : start + AT_ONCE], within, observed)
    blanks = {cycle.id: _blank(cycle) for cycle in cycles}
    return {
        node: [
            NodeObservation(**{**blanks[cycle.id], **observed[cycle.id, node]})
            if (cycle.id, node) in observed
            else NodeObservation(**blanks[cycle.id])
            for cycle in cycles
        ]
        for node in wanted
    }


def _blank(cycle: Row[Any]) -> dict[str, Any]:
    return {
        "cycle": cycle.id,
        "at": cycle.started_at,
        "trigger": cycle.trigger,
        "dry_run": cycle.dry_run,
        "finding": None,
        "share": None,
        "high": None,
        "refusals": {},
        "stopped": REASONS.get(cycle.stopped_code),
    }


def _read(
    connection: Connection,
    nodes: list[str],
    within: tuple[ColumnElement[bool], ...],
    observed: dict[tuple[str, str], dict[str, Any]],
) -> None:
    def of(table: Table, *columns: Any) -> Select[Any]:
        query = select(table.c.cycle, table.c.node, *columns).join(CYCLES, CYCLES.c.id == table.c.cycle)
        return query.where(*within, table.c.node.in_(nodes))

    # only findings of hot nodes have a share
    hot = of(FINDINGS, FINDINGS.c.strategy, FINDINGS.c.resource, FINDINGS.c.others)
    cooled = set()
    for row in connection.execute(hot.where(FINDINGS.c.cpu_share.is_not(None)).order_by(FINDINGS.c.id)):
        # the hot-node SLO is one of CPU; the others of a finding are resources that the node is hot by as well
        if CPU not in (row.resource or CPU, *(each[0] for each in row.others or ())):
            continue
        # of several strategies the first; its mark may be another resource's, so it is not taken for `high`
        observed[row.cycle, row.node].setdefault("finding", row.strategy)
        cooled.add((row.cycle, row.node, row.strategy))
    packed = (
        select(NODE_MEASUREMENTS.c.cycle, NODE_MEASUREMENTS.c.nodes)
        .join(CYCLES, CYCLES.c.id == NODE_MEASUREMENTS.c.cycle)
        .where(*within)
    )
    for cycle, measured in connection.execute(packed):
        for _, node, share, high in unpack_node_measurements(measured, nodes):
            observed[cycle, node].update(share=share, high=high)
    for row in connection.execute(of(CYCLE_NODES, CYCLE_NODES.c.cpu_before, CYCLE_NODES.c.high)):
        fields = observed[row.cycle, row.node]
        fields["share"] = row.cpu_before
        if row.high is not None:
            fields["high"] = row.high
    examples: dict[tuple[str, str], list[Any]] = defaultdict(list)
    refused = of(REFUSALS, REFUSALS.c.code, REFUSALS.c.count, REFUSALS.c.examples).order_by(REFUSALS.c.id)
    for row in connection.execute(refused):
        if row.code in REASONS:
            observed[row.cycle, row.node].setdefault("refusals", {})[REASONS[row.code]] = row.count
        examples[row.cycle, row.node] += row.examples
    for key, some in examples.items():
        observed[key]["examples"] = tuple(map(_example, sorted(some, key=_helpfulness)))
    moved = of(EVICTIONS, EVICTIONS.c.strategy, EVICTIONS.c.dry_run, func.count())
    moved = moved.where(EVICTIONS.c.outcome.in_(MAY_HAVE_HAPPENED))
    grouped = moved.group_by(EVICTIONS.c.cycle, EVICTIONS.c.node, EVICTIONS.c.strategy, EVICTIONS.c.dry_run)
    counts: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for cycle, node, strategy, dry_run, count in connection.execute(grouped):
        if (cycle, node, strategy) in cooled:
            counts[cycle, node][dry_run] += count
    for key, each in counts.items():
        # planned ones of a strategy in dry run don't count beside real ones
        observed[key].update(dry_run=not each[False], evictions=each[not each[False]])


def _helpfulness(example: Mapping[str, Any]) -> tuple[bool, float]:
    return not example["pod"], -example.get("cpu_millicores", 0.0)


def _example(example: Mapping[str, Any]) -> str:
    if not example["pod"]:
        return str(example["message"])
    return f"{example['namespace']}/{example['pod']}: {example['message']}"
