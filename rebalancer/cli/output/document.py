"""A cycle as the JSON document of `plan -o json`, `run -o json` and `demo -o json`.

Fields are only ever added. Shares are 0..1; null means not known (or, for `cpuShareAfter`, not measured). A finding's
shares are those of a node that is to be cooled (goal `cool`), null for any other. `landing` is null for a pod that has
finished. `cordons` are ours: why before the cycle, and why while its plan runs; null = none.
"""

import math
from datetime import UTC, datetime
from typing import Any

from rebalancer.model.plan import CycleReport

SCHEMA_VERSION = "1"


def cycle_document(report: CycleReport) -> dict[str, Any]:
    """The whole document of one cycle."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "cycle": {
            "id": report.id,
            "cluster": report.cluster,
            "trigger": str(report.trigger),
            "dryRun": report.dry_run,
            "startedAt": _time(report.started_at),
            "finishedAt": _time(report.finished_at),
            "stopped": {"code": str(report.stopped.code), "message": report.stopped.message}
            if report.stopped
            else None,
            "notes": list(report.notes),
        },
        "nodes": [
            {
                "name": line.name,
                "pool": line.pool or None,
                "cpuShareBefore": line.cpu_before,
                "cpuSharePlanned": line.cpu_planned,
                "cpuShareAfter": line.cpu_after,
                "hot": line.hot,
            }
            for line in report.nodes
        ],
        "findings": [
            {
                "strategy": finding.strategy,
                "node": node,
                "pool": finding.pool,
                "goal": str(finding.goal),
                "cpuShare": _known(finding.cpu_share),
                "high": _known(finding.high),
                "target": _known(finding.target),
                "reason": finding.reason,
            }
            for finding, node in report.findings
        ],
        "steered": [{"node": node, "reason": reason} for node, reason in report.steered.items()],
        "cordons": [
            {"node": node, "before": report.cordons_before.get(node), "now": report.cordons.get(node)}
            for node in sorted({*report.cordons_before, *report.cordons})
        ],
        "progress": dict(report.progress),
        "evictions": [
            {
                "namespace": eviction.namespace,
                "pod": eviction.pod,
                "uid": eviction.uid,
                "node": eviction.node,
                "pool": eviction.pool,
                "service": str(eviction.service),
                "cpuMillicores": _number(eviction.cpu_millicores),
                "landing": eviction.target_nodes[0][0] if eviction.target_nodes else None,
                "landings": [{"node": node, "share": share} for node, share in eviction.target_nodes],
                "outcome": str(eviction.outcome),
                "detail": eviction.detail,
                "strategy": eviction.strategy,
                "reason": eviction.reason,
            }
            for eviction in report.evictions
        ],
        "refusals": [
            {
                "node": refusal.node,
                "namespace": refusal.namespace,
                "pod": refusal.name,
                "code": str(refusal.code),
                "message": refusal.message,
            }
            for refusal in report.refusals
        ],
    }


def merged_document(reports: list[CycleReport]) -> dict[str, Any]:
    """Several cycles in a row as one document: nodes before the first and after the last, everything in between.

    `refusals` are the last cycle's; `cycles` holds each cycle's own document.
    """
    first, last = reports[0], reports[-1]
    document = cycle_document(first)
    after = {line.name: line.cpu_after for report in reports for line in report.nodes if line.cpu_after is not None}
    for line in document["nodes"]:
        line["cpuShareAfter"] = after.get(line["name"])
    document["cycle"]["finishedAt"] = _time(last.finished_at)
    documents = [cycle_document(report) for report in reports]
    document["findings"] = [each for part in documents for each in part["findings"]]
    document["evictions"] = [each for part in documents for each in part["evictions"]]
    document["refusals"] = documents[-1]["refusals"]
    document["cycles"] = documents
    return document


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
