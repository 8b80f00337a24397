"""Rows of the database, as plain dicts, to what the dashboard's pages show."""

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.model.reason import Reason
from rebalancer.web.views import (
    CycleLine,
    Example,
    Found,
    NodeChange,
    Refused,
    ServiceLine,
)

Row = Mapping[str, Any]
_SENTENCES = {code.value: code.sentence for code in Reason}


def cycle_line(row: Row) -> CycleLine:
    """Of `cycles`, with `outcomes`."""
    return CycleLine(
        id=row["id"],
        trigger=row["trigger"],
        dry_run=row["dry_run"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        nodes=row["nodes"],
        hot_nodes=row["hot_nodes"],
        findings=row["findings"],
        refusals=row["refusals"],
        outcomes=row["outcomes"],
        stopped=row["stopped_message"] or "",
        notes=tuple(row["notes"]),
    )


def found(row: Row, *, at: float | None = None) -> Found:
    """Of `findings`; when its cycle began is in the row or given."""
    return Found(
        at=row["at"] if at is None else at,
        cycle=row["cycle"],
        node=row["node"],
        strategy=row["strategy"],
        share=row["cpu_share"],
        high=row["high"],
        target=row["target"],
        reason=row["reason"],
    )


def refused(row: Row, *, at: float | None = None) -> Refused:
    """Of `refusals`; when its cycle began is in the row or given."""
    return Refused(
        node=row["node"],
        code=row["code"],
        sentence=sentence_of(row["code"]),
        count=row["count"],
        examples=tuple(_example(each) for each in row["examples"]),
        cycle=row["cycle"],
        at=row["at"] if at is None else at,
        cycles=row.get("cycles", 1),
    )


def node_change(row: Row) -> NodeChange:
    """Of `node_lines`."""
    return NodeChange(
        node=row["node"],
        pool=row["pool"],
        before=row["cpu_before"],
        planned=row["cpu_planned"],
        after=row["cpu_after"],
        high=row["high"],
        hot=row["hot"],
    )


def service_line(row: Row) -> ServiceLine:
    """Of `SqlReading.services`: the same fields."""
    return ServiceLine(**row)


def sentence_of(code: str) -> str:
    """The code itself where another version wrote it."""
    return _SENTENCES.get(code, code)


def _example(row: Row) -> Example:
    pod = f"{row['namespace']}/{row['pod']}" if row["pod"] else ""
    return Example(pod=pod, message=row["message"], cpu_millicores=row.get("cpu_millicores"))


def helped_most(rows: Sequence[Refused]) -> tuple[Refused, ...]:
    """By node, those that refused most pods first."""
    return tuple(sorted(rows, key=lambda each: (each.node, -each.count, each.code)))
