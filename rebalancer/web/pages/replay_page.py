"""A replay as one self-contained HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from markupsafe import Markup

from rebalancer.model.notation.figures import percent
from rebalancer.model.notation.heat import change, hours
from rebalancer.model.recordings.replay import HOUR_MINUTES, Replay, ReplayRun
from rebalancer.replay.comparison.lines import EvictionLine, ReplaySummary, RunDetails, RunLine
from rebalancer.replay.comparison.messages import (
    bound_sentence,
    capacity_sentence,
    error_sentence,
    gap_sentence,
    goal_sentence,
    sentences,
)
from rebalancer.replay.comparison.summary import all_runs, summary_of
from rebalancer.web.pages.render import render, static
from rebalancer.web.pages.replay_charts import Columns, frontier, heat_map, hottest, over_time

MOST_DETAILED = 4
"""Policies with pictures and tables of their own; the others are in the tables of runs and pools."""
MOST_NODES = 50
"""Rows of the table of nodes."""
FIRST_SERVICES = 10
"""Rows of the table of services; the others are below it, folded."""
MOST_EVICTIONS = 500
"""Rows of the table of evictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHours:
    """Hot hours of a node."""

    node: str
    pool: str
    hours: tuple[float, ...]
    """Of each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detailed:
    """A policy with pictures."""

    line: RunLine
    of: RunDetails
    sentences: tuple[str, ...]
    over_time: Markup
    heat_map: Markup
    evictions: tuple[EvictionLine, ...]
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A command that follows."""

    purpose: str
    command: str


def render_replay(
    replay: Replay, *, now: float, goal: str = "", notes: Sequence[str] = (), next_steps: Sequence[NextStep] = ()
) -> str:
    """The replay as one HTML file, with style and pictures inside; it requests nothing. `now`: when it was made; the
    others as in `summary_of`."""
    same, summary = summary_of(replay, when, goal=goal, notes=notes)
    runs = all_runs(same)
    chosen = [run for run in runs if run.label in summary.policies][:MOST_DETAILED]
    rows = hottest(same, [runs[0], *chosen])
    lines = {line.label: line for line in summary.runs}
    return render(
        "replay.html",
        now=now,
        style=Markup(static("style.css").decode()),
        summary=summary,
        details=[_detailed(same, summary, run, lines[run.label], rows, n) for n, run in enumerate(chosen)],
        recorded=heat_map(same, runs[0], rows, name="map-recorded"),
        rows=len(rows),
        column=Columns.of(same).name,
        nodes=_nodes(same, [runs[0], *chosen], rows),
        runs=[runs[0].label, *(run.label for run in chosen)],
        frontier=frontier(summary.runs, name="frontier") if len(summary.runs) > 2 else Markup(),
        bound=bound_sentence(summary),
        capacity=[capacity_sentence(each, when) for each in summary.capacity],
        error=error_sentence(summary),
        goal=goal_sentence(summary),
        gaps=[gap_sentence(each) for each in summary.gaps],
        highs=sorted({percent(line.high) for line in summary.pools if line.high is not None}),
        first_services=FIRST_SERVICES,
        next_steps=next_steps,
        hours=hours,
        change=change,
        when=when,
    )


def when(at: float) -> str:
    """`Tue 22 Sep 10:00 UTC`"""
    return f"{datetime.fromtimestamp(at, UTC):%a %d %b %H:%M} UTC"


def _detailed(
    replay: Replay, summary: ReplaySummary, run: ReplayRun, line: RunLine, rows: Sequence[int], number: int
) -> Detailed:
    of = summary.of(run.label)
    return Detailed(
        line=line,
        of=of,
        sentences=tuple(each.replace("->", "→") for each in sentences(summary, line, when)),
        over_time=over_time(replay, replay.as_recorded, run, name=f"over-{number}"),
        heat_map=heat_map(replay, run, rows, name=f"map-{number}"),
        evictions=of.evictions[:MOST_EVICTIONS],
        policy=summary.policies[run.label],
    )


def _nodes(replay: Replay, runs: Sequence[ReplayRun], rows: Sequence[int]) -> list[NodeHours]:
    """The hottest nodes of the heat maps."""
    minutes = np.array([np.nansum(run.hot_minutes[list(rows)], axis=1) for run in runs])
    order = np.argsort(-minutes.max(axis=0), kind="stable")[:MOST_NODES]
    return [
        NodeHours(
            node=replay.nodes[rows[at]],
            pool=replay.pools[rows[at]],
            hours=tuple(float(each) / HOUR_MINUTES for each in minutes[:, at]),
        )
        for at in order
    ]
