"""A replay in sentences, for terminal and page alike."""

import math
from collections.abc import Callable

from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.figures import cores, counted
from rebalancer.model.notation.heat import Heat, hot_hours, hours, its_cost
from rebalancer.replay.comparison.lines import CapacityLine, GapLine, ReplaySummary, RunLine

MOST_SERVICES = 5
"""Services in a sentence."""
MOST_SPANS = 3
"""Spans of hours in a sentence."""


def sentences(summary: ReplaySummary, line: RunLine, when: Callable[[float], str]) -> list[str]:
    """What one policy would have done, a sentence each. `when` formats times."""
    of = summary.of(line.label)
    heat = Heat(before=summary.before.hot_node_hours, after=line.hot_node_hours, evictions=line.evictions)
    cost = its_cost(heat)
    out = [hot_hours(heat), cost[:1].upper() + cost[1:]]
    if line.evictions:
        out[-1] += f"; of {counted(line.services, 'service')}, at most {line.most_in_flight} at a time"
        most = of.services[:MOST_SERVICES]
        out.append("Moved most: " + ", ".join(f"{each.service} ({each.evictions})" for each in most))
    if of.blocked:
        worst = of.blocked[0]
        out.append(
            f"Kept hot longest: {hours(worst.hot_node_hours)} node-hours by {worst.code}, most at "
            f"{when(worst.worst_at)} on {counted(worst.worst_nodes, 'node')}: {worst.example or worst.meaning}"
        )
    return out


def error_sentence(summary: ReplaySummary) -> str:
    """The replay's own error."""
    simulated, measured = hours(summary.before.hot_node_hours), hours(summary.measured_hot_node_hours)
    if not math.isfinite(summary.error):
        return f"The run as recorded gives {simulated} hot node-hours; none were measured."
    off = f"{summary.error * 100:+.1f}%"
    return f"The run as recorded gives {simulated} hot node-hours; {measured} were measured ({off})."


def bound_sentence(summary: ReplaySummary) -> str:
    """What no eviction can remove."""
    bound = summary.bound
    parts = [
        f"{hours(value)} {cause}"
        for value, cause in (
            (bound.large_pods, "by pods that use more than any node has left under its high"),
            (bound.capacity, "as all pods together use more than all nodes have left"),
        )
        if value
    ]
    if not parts:
        return "None of them must stay: with pods placed and moved at will no node would have been hot."
    return f"At least {hours(bound.hot_node_hours)} hot node-hours stay whatever is evicted: {', '.join(parts)}."


def capacity_sentence(line: CapacityLine, when: Callable[[float], str]) -> str:
    """What a pool lacks, or has to spare. `when` formats times."""
    of = f"of {cores(line.node_millicores)} cores"
    if line.missing == 0:
        return (
            f"Pool {line.pool} lacks no node. To spare of its {counted(line.nodes, 'node')} {of}: at most "
            f"{line.spare_by_usage} by usage, {line.spare_by_requests} by requests."
        )
    spans = [f"{when(each.since)} to {when(each.until)}" for each in line.short]
    total = round(sum(each.until - each.since for each in line.short) / HOUR_SECONDS)
    times = ", ".join(spans[:MOST_SPANS]) + (f" and {len(spans) - MOST_SPANS} more" if spans[MOST_SPANS:] else "")
    lacks = f"at least {counted(line.missing, 'node')} {of}" if line.missing else f"more than nodes {of} could give"
    return f"Pool {line.pool} lacks {lacks}, in {counted(total, 'hour')}: {times}."


def goal_sentence(summary: ReplaySummary) -> str:
    """Which run meets the goal; empty without a goal."""
    if summary.goal is None:
        return ""
    line = next((each for each in summary.runs if each.label == summary.goal.run), None)
    if line is None:
        return f"no run keeps {summary.goal.text}"
    figures = f"{counted(line.evictions, 'eviction')}, {hours(line.hot_node_hours)} hot node-hours"
    return f"{summary.goal.text} is kept with the fewest evictions by {line.label}: {figures}"


def gap_sentence(gap: GapLine) -> str:
    """`affinity is that of today (212 pods)`"""
    return f"{gap.text} ({counted(gap.pods, 'pod')})" if gap.pods else gap.text
