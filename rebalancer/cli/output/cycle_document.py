"""A cycle as the JSON document of `plan`, `run` and `demo`. Shares are 0..1; null = unknown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rebalancer.cli.output.json import SCHEMA_VERSION, at, camel, encode
from rebalancer.model.decisions.eviction import DOCUMENT_FIELDS, Eviction, value_of
from rebalancer.model.decisions.plan import (
    CycleReport,
    Finding,
    Goal,
    NodeLine,
    PlanScore,
    PodRefusal,
    RemainingHotNode,
    ResourceExcess,
    Trigger,
    total_score,
)
from rebalancer.model.notation.document import TextOrNull
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why nothing was planned."""

    code: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleHead:
    """The cycle itself."""

    id: str
    cluster: str
    trigger: Trigger
    dry_run: bool
    started_at: str | None
    finished_at: str | None
    stopped: Stopped | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEntry:
    """A finding. Its shares are those of a node to be cooled (goal `cool`), null for any other goal."""

    strategy: str
    node: str
    pool: str
    goal: Goal
    resource: str
    share: float
    """Of `resource`."""
    cpu_share: float | None
    """The same where `resource` is CPU."""
    high: float
    target: float
    reason: str
    resources: tuple[ResourceExcess, ...]
    """Every resource that is too high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTaint:
    """A node with the program's soft taint while the plan runs."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonEntry:
    """The program's own cordon of a node: its reason before the cycle and while the plan runs, null for none."""

    node: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingEntry:
    """A hot node that the plan leaves over its target."""

    node: str
    pool: TextOrNull
    resource: str
    cpu_share_planned: float | None
    """Mean over the draws of the plan's landings, where `resource` is CPU."""
    share_planned: float
    code: Reason
    message: str
    setting: TextOrNull
    """Policy key that would help most."""
    value: TextOrNull
    """A value of it that would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalEntry:
    """An open proposal with the evictions of a part in `mode: Approve`."""

    id: str
    pool: str
    strategy: str
    evictions: int
    expires_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDocument:
    """The document of one cycle."""

    cycle: CycleHead
    nodes: Sequence[NodeLine]
    findings: Sequence[FindingEntry]
    soft_taints: Sequence[SoftTaint]
    cordons: Sequence[CordonEntry]
    node_maintenance: Mapping[str, int]
    score: PlanScore | None
    """Null where nothing was planned."""
    evictions: Sequence[Mapping[str, Any]]
    proposals: Sequence[ProposalEntry]
    remaining_hot_nodes: Sequence[RemainingEntry]
    refusals: Sequence[PodRefusal]

    @classmethod
    def of(cls, report: CycleReport) -> "CycleDocument":
        """The document of a report."""
        before, now, stopped = report.cordons_before, report.cordons, report.stopped
        return cls(
            cycle=CycleHead(
                id=report.id,
                cluster=report.cluster,
                trigger=report.trigger,
                dry_run=report.dry_run,
                started_at=at(report.started_at, "milliseconds"),
                finished_at=at(report.finished_at, "milliseconds"),
                stopped=None if stopped is None else Stopped(code=stopped.code, message=stopped.message),
                notes=report.notes,
            ),
            nodes=[_with_p99(line) for line in report.nodes],
            findings=[_finding(finding, node) for finding, node in report.findings],
            soft_taints=[SoftTaint(node=node, reason=reason) for node, reason in report.soft_tainted.items()],
            cordons=[
                CordonEntry(node=node, before=before.get(node), now=now.get(node)) for node in sorted({*before, *now})
            ],
            node_maintenance=report.progress,
            score=report.score,
            evictions=[_move(eviction) for eviction in report.evictions],
            proposals=[
                ProposalEntry(
                    id=each.id,
                    pool=each.plan.pool,
                    strategy=each.plan.strategy,
                    evictions=len(each.plan.evictions),
                    expires_at=at(each.expires_at),
                )
                for each in report.proposals
            ],
            remaining_hot_nodes=[_remaining(node) for node in report.remaining],
            refusals=report.refusals,
        )


def _finding(finding: Finding, node: str) -> FindingEntry:
    return FindingEntry(
        strategy=finding.strategy,
        node=node,
        pool=finding.pool,
        goal=finding.goal,
        resource=finding.resource,
        share=finding.cpu_share,
        cpu_share=finding.cpu_share if finding.resource == CPU else None,
        high=finding.high,
        target=finding.target,
        reason=finding.reason,
        resources=finding.excesses,
    )


def _remaining(node: RemainingHotNode) -> RemainingEntry:
    return RemainingEntry(
        node=node.name,
        pool=node.pool,
        resource=node.resource,
        cpu_share_planned=node.share_planned if node.resource == CPU else None,
        share_planned=node.share_planned,
        code=node.code,
        message=node.message,
        setting=node.setting,
        value=node.value,
    )


def _with_p99(line: NodeLine) -> NodeLine:
    """Mean and 99th percentile are equal where the landings are certain."""
    return replace(line, cpu_planned_p99=line.cpu_planned) if line.cpu_planned_p99 is None else line


def _move(eviction: Eviction) -> dict[str, Any]:
    return {
        **{camel(name): value_of(eviction, name) for name in DOCUMENT_FIELDS},
        "cpuMillicores": round(eviction.cpu_millicores, 3),
        "resource": eviction.resource or None,
        "amounts": [
            {"resource": name, "amount": each.amount, "nodeShare": each.share}
            for name, each in eviction.amounts.items()
        ],
        "targetNode": eviction.target_node or None,
        "targetNodes": target_nodes(eviction.target_nodes),
        "waitsFor": eviction.waits_for or None,
        "notBefore": at(eviction.reserved.not_before),
    }


def target_nodes(landings: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    """Target nodes with their probabilities, likeliest first."""
    return [{"node": node, "probability": probability} for node, probability in landings]


def cycle_document(report: CycleReport) -> dict[str, Any]:
    """The document of one cycle, in the types of JSON."""
    document: dict[str, Any] = encode(CycleDocument.of(report))
    return document


def merged_nodes(reports: Sequence[CycleReport]) -> list[NodeLine]:
    """The nodes of several cycles in a row: before and planned by the first cycle, measured after the last one."""
    after = {line.name: line.cpu_after for report in reports for line in report.nodes if line.cpu_after is not None}
    return [replace(line, cpu_after=after.get(line.name)) for line in reports[0].nodes]


def merged_document(reports: Sequence[CycleReport]) -> dict[str, Any]:
    """The document of several cycles in a row, with the findings and evictions of all of them.

    `remainingHotNodes` and `refusals` are the last cycle's; `cycles` holds the document of each cycle.
    """
    documents = [cycle_document(report) for report in reports]
    first, last = documents[0], documents[-1]
    return {
        **first,
        "cycle": {**first["cycle"], "finishedAt": last["cycle"]["finishedAt"]},
        "nodes": encode([_with_p99(line) for line in merged_nodes(reports)]),
        "findings": [each for part in documents for each in part["findings"]],
        "score": encode(total_score(report.score for report in reports)),
        "evictions": [each for part in documents for each in part["evictions"]],
        "proposals": [each for part in documents for each in part["proposals"]],
        **{field: last[field] for field in ("remainingHotNodes", "refusals")},
        "cycles": [{"schemaVersion": SCHEMA_VERSION, **part} for part in documents],
    }
