"""A cycle's report: nodes, findings, refusals and what the limits leave."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan.simulation import AppliedTaints
from rebalancer.cycle.report.spare_cpu import spare_cpu, spare_notes
from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.plan import (
    NODE_COLUMNS,
    CycleReport,
    Finding,
    NodeLine,
    PlanScore,
    PodRefusal,
    ResourceShare,
    total_score,
)
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.planner import Planner
from rebalancer.planner.explain.remaining import remaining_of
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan that was carried out, or would be."""

    planner: Planner
    """After the last move."""
    taints: AppliedTaints
    moves: Sequence[Eviction]
    """Its own."""


def describe(
    report: CycleReport,
    seen: Observation,
    found: list[Findings],
    plans: Sequence[Plan],
    high: NDArray[np.float64],
) -> None:
    """Fill the report. `plans`: that of the parts that act, then those of the others; each counts the moves of those
    before it. `high` (nodes,): shares of CPU, from `high_thresholds`."""
    planner = plans[-1].planner
    snapshot, names = seen.snapshot, seen.snapshot.nodes.names
    room = snapshot.nodes.cpu_capacity_millicores
    happened = [each for each in report.evictions if each.answered.outcome in MAY_HAVE_HAPPENED]
    planned, high_planned = planner.outcome.planned_cpu(seen.cpu.node, happened)
    hot = np.zeros(len(names), dtype=bool)
    hot_by: dict[int, dict[str, None]] = {}
    for findings in found:
        if findings.loads is not None:
            hot |= findings.loads.hot
            for node in np.flatnonzero(findings.loads.hot).tolist():
                hot_by.setdefault(node, {}).update(dict.fromkeys(findings.loads.hot_by(node)))
        report.findings += [(finding, names[finding.node]) for finding in _reported(findings, plans)]
        report.notes += findings.notes
        for state, count in findings.progress.items():
            report.progress[state] = report.progress.get(state, 0) + count
        report.refusals += [
            PodRefusal(node=names[node], namespace="", name="", code=refusal.code, message=refusal.message)
            for node, refusal in sorted(findings.skipped.items())
        ]
    report.refusals += [
        PodRefusal(node=names[node], namespace="", name="", code=refusal.code, message=refusal.message)
        for node, refusal in sorted(seen.node_pools.left_out.items())
    ]
    if not report.stopped:
        report.spare_cpu = spare_cpu(snapshot, seen.node_pools, seen.cpu, seen.projection)
        report.notes += spare_notes(report.spare_cpu)
    refused = _refusals(plans)
    report.refusals += refused
    resources = _resource_shares(planner, seen, happened)
    over = dict(reversed([each for plan in plans for each in plan.planner.outcome.still_hot()]))
    shares = [
        (
            names[node],
            seen.node_pools.names[node],
            resource if resource in resources else CPU,
            float(resources[resource][1][node] if resource in resources else planned[node] / room[node]),
        )
        for node, resource in reversed(over.items())
    ]
    # parts that don't act remove nothing, except where no part does
    report.score = _score(plans[:1] if report.not_made else plans)
    report.remaining = remaining_of(shares, refused)
    admission = plans[0].planner.admission
    for check in admission.rules.every_check(()):
        if check.kind in ("rate", "inFlight"):
            left = max(check.at_most - admission.view.used(check), 0)
            report.limits_left[check.scope.kind] = min(left, report.limits_left.get(check.scope.kind, left))
    uncertain = high_planned != planned
    changed = _differs(planned, seen.cpu.node) | _differs(high_planned, seen.cpu.node)
    for before, after in resources.values():
        changed |= _differs(before, after)
    for index in sorted(range(len(names)), key=lambda node: names[node]):
        report.nodes.append(
            NodeLine(
                name=names[index],
                pool=seen.node_pools.names[index],
                cpu_before=_share(seen.usage.node_cpu_millicores[index], room[index]),
                cpu_planned=_share(planned[index], room[index]),
                cpu_planned_p99=_share(high_planned[index], room[index]) if uncertain[index] else None,
                hot=bool(hot[index]),
                hot_by=tuple(hot_by.get(index, ())),
                high=float(high[index]) if np.isfinite(high[index]) else None,
                changed=bool(changed[index]),
                resources=tuple(
                    ResourceShare(
                        resource=name,
                        before=_share(before[index], 1.0),
                        planned=_share(after[index], 1.0),
                    )
                    for name, (before, after) in resources.items()
                ),
                **snapshot.nodes.row(index, NODE_COLUMNS),
            )
        )


def _reported(findings: Findings, plans: Sequence[Plan]) -> list[Finding]:
    """All, but of a pending pod only the finding for the node on which room is made, or the most promising one."""
    pods = plans[0].planner.state.snapshot.pods
    planned = [each for plan in plans for each in plan.planner.state.planned]
    chosen = {each.room_for: int(pods.node[each.pod]) for each in planned if each.room_for is not None}
    out = []
    for each in findings.findings:
        if each.room_for is None or chosen.setdefault(each.room_for, each.node) == each.node:
            out.append(each)
    return out


def _refusals(plans: Sequence[Plan]) -> list[PodRefusal]:
    """Of pods in none of the plans; a pod that several refuse has the reason of the first."""
    planned = {(move.namespace, move.pod) for plan in plans for move in plan.moves}
    found: dict[tuple[str, str], PodRefusal] = {}
    for plan in plans:
        for each in plan.taints.refusals(plan.planner.outcome.refusals()):
            pod = (each.namespace, each.name)
            if len(plans) == 1 or pod not in planned:
                found.setdefault(pod, each)
    return sorted(found.values(), key=lambda each: (each.node, each.namespace, each.name))


def _score(plans: Sequence[Plan]) -> PlanScore | None:
    """The sum of the plans' scores; None without a move."""
    return total_score(
        plan.planner.outcome.score(happened)
        for plan in plans
        if (happened := [each for each in plan.moves if each.answered.outcome in MAY_HAVE_HAPPENED])
    )


def _differs(one: Floats, other: Floats) -> Bools:
    """(nodes,) whether both are known and not equal."""
    out: Bools = np.isfinite(one) & np.isfinite(other) & (one != other)
    return out


def _share(millicores: float, room: float) -> float | None:
    return float(millicores / room) if np.isfinite(millicores) and room > 0 else None


def _resource_shares(
    planner: Planner, seen: Observation, moves: Sequence[Eviction]
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Resource besides CPU that pools have thresholds of -> shares (nodes,) before and with these moves."""
    out = {}
    for name in seen.node_pools.resources:
        used = seen.usage.resources.get(name)
        if used is not None:
            coming = seen.loads.pod[:, seen.loads.resources.index(name)]
            planned = planner.outcome.planned_amount(used.node, used.pod, coming, moves)
            out[name] = used.node / used.capacity, planned / used.capacity
    return out
