"""Measures nodes again after evictions, once the replacements are Ready and a full rate window has passed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.evict.waiting import READY
from rebalancer.cycle.observe.ledger_state import landed_since
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.policy import RebalancerPolicy

POLL_SECONDS = 10.0
LONGEST_POLL_SECONDS = 60.0
READY_DEADLINE_SECONDS = 900.0
SCRAPE_SLACK_SECONDS = 30.0
"""Two scrape intervals of Prometheus' default configuration in kube-prometheus-stack."""


def remeasure(context: CycleContext, policy: RebalancerPolicy, report: CycleReport) -> None:
    """Fill in `cpu_after` of every node and record it. Returns at once when nothing was evicted."""
    moved = [each for each in report.evictions if each.answered.outcome is Outcome.EVICTED]
    if not moved:
        return
    late = _wait_until_ready(context, policy, moved)
    if late:
        report.notes.append(
            f"measured although not Ready after {READY_DEADLINE_SECONDS:g} s: {', '.join(sorted(late))}"
        )
    _wait(context, "a full rate window", policy.usage.rate_window + SCRAPE_SLACK_SECONDS)
    snapshot = context.cluster.snapshot()
    usage = context.usage.read(snapshot)
    after = usage.node_cpu_millicores / snapshot.nodes.cpu_capacity_millicores
    report.nodes = [
        replace(line, cpu_after=_known(after[snapshot.node_index[line.name]]))
        if line.name in snapshot.node_index
        else line
        for line in report.nodes
    ]
    report.finished_at = context.clock.now()
    context.records.finish(report)


def _wait_until_ready(context: CycleContext, policy: RebalancerPolicy, moved: Sequence[Eviction]) -> set[str]:
    """The services whose replacements are not Ready at the deadline. Those that are, are recorded in the ledger."""
    assert context.ledger is not None
    waited, pause = 0.0, POLL_SECONDS
    in_flight = {each.uid for each in context.ledger.open_evictions()}
    while True:
        if in_flight:
            if context.surges is not None:
                context.surges.turn()
            ended = landed_since(context.ledger, policy.safety, context.cluster)
            for each in moved:
                if each.uid in in_flight & ended.keys():
                    why = ended[each.uid]
                    text = f"Not waited for: the replacement of {each.full_name}: {why}" if why else ""
                    context.progress.event(text or f"Ready: the replacement of {each.full_name}")
            in_flight -= ended.keys()
        waiting = [each for each in moved if each.uid in in_flight]
        done = len(moved) - len(waiting)
        if not waiting or waited >= READY_DEADLINE_SECONDS:
            context.progress.step(READY, done, done)  # ends the bar
            return {str(each.service) for each in waiting}
        context.progress.step(READY, done, len(moved))
        context.clock.sleep(pause)
        waited += pause
        pause = min(pause * 1.5, LONGEST_POLL_SECONDS)  # each poll lists the cluster


def _wait(context: CycleContext, label: str, seconds: float) -> None:
    steps = max(1, round(seconds / POLL_SECONDS))
    for step in range(steps):
        context.progress.step(label, step, steps)
        context.clock.sleep(seconds / steps)
    context.progress.step(label, steps, steps)


def _known(share: float) -> float | None:
    return float(share) if np.isfinite(share) else None
