"""Summary of a replay: its runs side by side, by pool, by service, and what kept nodes hot.

All runs are compared over the same time. Where a replay was interrupted that is the time of the finished runs, or else
of the run that ended first.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.reason import Reason
from rebalancer.model.recordings.replay import (
    HOUR_MINUTES,
    Grid32,
    HotBound,
    PoolCapacity,
    Replay,
    ReplayedCycle,
    ReplayRun,
)
from rebalancer.replay.comparison.lifted import LIFTED
from rebalancer.replay.comparison.lines import (
    BlockedLine,
    BoundLine,
    CapacityLine,
    EvictionLine,
    GapLine,
    GoalLine,
    PoolLine,
    Replayed,
    ReplaySummary,
    RuleLine,
    RunLine,
    ServiceLine,
    Span,
)
from rebalancer.replay.comparison.variants import cheapest, frontier, read_goal

HOUR_STEPS = round(3600 / STEP_SECONDS)
KNOWN_SECONDS = 3600.0
"""A reason that a cycle gave for a hot node holds until the next cycle, and at most for so long."""
STOPPED = "stopped"
"""Stands for the reason of a cycle that stopped without a code."""


def compared(replay: Replay) -> Replay:
    """The replay with all runs over the same time: the finished runs, or all until the first one's end."""
    finished = tuple(run for run in replay.runs if run.until >= replay.end)
    known = [replay.as_recorded, replay.without]
    if all(run.until >= replay.end for run in known) and (finished or not replay.runs):
        return replace(replay, runs=finished)
    until = min(run.until for run in (*known, *replay.runs))
    steps = max(int((until - replay.start) // STEP_SECONDS), 0)
    end = replay.start + steps * STEP_SECONDS
    return replace(
        replay,
        end=end,
        measured_share=replay.measured_share[:, :steps],
        measured_hot_minutes=replay.measured_hot_minutes[:, :steps],
        bound=HotBound(*(each[:steps] for each in replay.bound)),
        capacity=(),
        as_recorded=_cut(replay.as_recorded, steps, end),
        without=_cut(replay.without, steps, end),
        runs=tuple(_cut(run, steps, end) for run in replay.runs),
    )


def _cut(run: ReplayRun, steps: int, end: float) -> ReplayRun:
    return replace(
        run,
        until=end,
        share=run.share[:, :steps],
        hot_minutes=run.hot_minutes[:, :steps],
        evictions=tuple(each for each in run.evictions if each.at < end),
        cycles=tuple(each for each in run.cycles if each.at < end),
    )


def all_runs(replay: Replay) -> tuple[ReplayRun, ...]:
    """`as recorded` first, then without evictions where that differs, then the policies."""
    without = () if replay.without.label == replay.as_recorded.label else (replay.without,)
    return (replay.as_recorded, *without, *replay.runs)


def summary_of(
    replay: Replay, when: Callable[[float], str], *, goal: str = "", notes: Sequence[str] = ()
) -> tuple[Replay, ReplaySummary]:
    """The compared part of a replay and its summary. `when` formats times; `goal` as in `read_goal`; `notes` come
    before those on runs that were interrupted. Raises ConfigError for an invalid goal."""
    same = compared(replay)
    kept = {run.label for run in same.runs}
    early = [run for run in all_runs(replay) if run.until < replay.end]
    notes = [*notes, *(f"{run.label}: {note}" for run in all_runs(same) for note in run.notes)]
    if same.end < replay.end:
        notes.insert(0, f"Interrupted: all figures are until {when(same.end)}, not {when(replay.end)}")
    notes += [f"{run.label}: interrupted at {when(run.until)}, left out" for run in early if run.label not in kept]
    missing = [label for label in replay.parts if label not in {run.label for run in replay.runs}]
    notes += [f"{label}: interrupted before all of it began, left out" for label in missing]
    return same, _summarised(same, goal, interrupted=bool(early or missing), notes=tuple(notes))


def _summarised(replay: Replay, goal: str, *, interrupted: bool, notes: tuple[str, ...]) -> ReplaySummary:
    runs = all_runs(replay)
    best = {run.label for run in frontier(runs, end=replay.end)}
    return ReplaySummary(
        replayed=replayed_of(replay, interrupted=interrupted),
        measured_hot_node_hours=replay.measured_hot_node_minutes / HOUR_MINUTES,
        bound=BoundLine(
            hot_node_hours=replay.bound.hours,
            large_pods=float(replay.bound.large_pods.sum()) / HOUR_MINUTES,
            capacity=float(replay.bound.capacity.sum()) / HOUR_MINUTES,
        ),
        capacity=tuple(_capacity(each) for each in replay.capacity),
        error=replay.error,
        runs=tuple(_line(run, on_frontier=run.label in best) for run in runs),
        pools=tuple(each for run in runs for each in _pools(replay, run)),
        services=tuple(each for run in runs for each in _services(run)),
        blocked=tuple(each for run in runs for each in blocked_of(replay, run)),
        rules=_rules(replay.runs),
        evictions=tuple(each for run in runs for each in _evictions(run)),
        gaps=gaps_of(replay),
        goal=_goal_line(replay, goal) if goal else None,
        policies={run.label: replay.parts.get(run.label, "") for run in replay.runs},
        notes=notes,
    )


def replayed_of(replay: Replay, *, interrupted: bool = False) -> Replayed:
    """What was replayed."""
    return Replayed(
        cluster=replay.cluster,
        source=replay.source,
        since=replay.start,
        until=replay.end,
        interrupted=interrupted,
        nodes=len(replay.nodes),
        pods=replay.pods,
        seed=replay.seed,
    )


def gaps_of(replay: Replay) -> tuple[GapLine, ...]:
    """What the recording lacks."""
    return tuple(GapLine(text=each.text, pods=each.pods) for each in replay.gaps)


def _capacity(of: PoolCapacity) -> CapacityLine:
    return CapacityLine(
        pool=of.pool,
        nodes=of.nodes,
        node_millicores=of.node_millicores,
        missing=of.missing,
        hot_node_hours=of.hot_node_minutes / HOUR_MINUTES,
        short=tuple(Span(since=since, until=until) for since, until in of.short),
        spare_by_usage=of.spare_by_usage,
        spare_by_requests=of.spare_by_requests,
    )


def _goal_line(replay: Replay, goal: str) -> GoalLine:
    run = cheapest(replay.runs, read_goal(goal), end=replay.end)
    return GoalLine(
        text=goal,
        run="" if run is None else run.label,
        part="" if run is None else replay.parts.get(run.label, ""),
    )


def _line(run: ReplayRun, *, on_frontier: bool) -> RunLine:
    return RunLine(
        label=run.label,
        until=run.until,
        hot_node_hours=run.hot_node_minutes / HOUR_MINUTES,
        hot_share=run.hot_share(),
        evictions=len(run.evictions),
        services=len({each.service for each in run.evictions}),
        most_in_flight=run.most_in_flight,
        cycles=len(run.cycles),
        stopped_cycles=sum(bool(each.stopped) for each in run.cycles),
        on_frontier=on_frontier,
        notes=run.notes,
    )


def _rules(runs: Sequence[ReplayRun]) -> tuple[RuleLine, ...]:
    lines = [
        RuleLine(
            rule=run.label.removesuffix(LIFTED),
            hot_node_hours=(runs[0].hot_node_minutes - run.hot_node_minutes) / HOUR_MINUTES,
            evictions=float(len(run.evictions) - len(runs[0].evictions)),
        )
        for run in runs
        if run.label.endswith(LIFTED)
    ]
    return tuple(sorted(lines, key=lambda each: (-each.hot_node_hours, each.evictions, each.rule)))


def _pools(replay: Replay, run: ReplayRun) -> Iterator[PoolLine]:
    pools = np.array(replay.pools, dtype=object)
    evicted = Counter(each.pool for each in run.evictions)
    for pool in sorted({*replay.pools}):
        rows = pools == pool
        minutes = float(np.nansum(run.hot_minutes[rows]))
        there = int(np.count_nonzero(np.isfinite(run.share[rows]))) * STEP_SECONDS / 60.0
        yield PoolLine(
            run=run.label,
            pool=pool,
            nodes=int(np.count_nonzero(rows)),
            high=replay.high.get(pool, math.nan),
            hot_node_hours=minutes / HOUR_MINUTES,
            hot_share=minutes / there if there else math.nan,
            evictions=evicted[pool],
        )


def _services(run: ReplayRun) -> list[ServiceLine]:
    nodes: dict[str, list[str]] = defaultdict(list)
    for each in run.evictions:
        nodes[str(each.service)].append(each.node)
    lines = [
        ServiceLine(run=run.label, service=service, evictions=len(of), nodes=len({*of}))
        for service, of in nodes.items()
    ]
    return sorted(lines, key=lambda each: (-each.evictions, each.service))


def _evictions(run: ReplayRun) -> Iterator[EvictionLine]:
    for each in run.evictions:
        yield EvictionLine(
            run=run.label,
            at=each.at,
            namespace=each.namespace,
            pod=each.pod,
            service=str(each.service),
            node=each.node,
            pool=each.pool,
            replacement_node=each.replaced.replacement_node,
            cpu_millicores=each.cpu_millicores,
            reason=each.reason,
        )


def blocked_of(replay: Replay, run: ReplayRun) -> list[BlockedLine]:
    """What kept nodes hot in a run, most hot node-hours first."""
    judged = judgements(replay, run)
    keys = {place: [(each.at, each.code) for each in found] for place, found in judged.items()}
    lines = [
        _blocked_line(replay, run, code, of_nodes, judged) for code, of_nodes in attributed(replay, run, keys).items()
    ]
    return sorted(lines, key=lambda each: (-each.hot_node_hours, each.code))


def attributed(
    replay: Replay, run: ReplayRun, keys: Mapping[int, Sequence[tuple[float, str]]]
) -> dict[str, dict[int, Grid32]]:
    """Key -> node -> (hours,) its hot minutes. `keys`: node -> times and keys, oldest first. A node's hot minutes
    belong to its newest key, if that is not older than KNOWN_SECONDS."""
    steps = run.hot_minutes.shape[1]
    ends = replay.start + STEP_SECONDS * np.arange(1, steps + 1)
    out: dict[str, dict[int, Grid32]] = defaultdict(dict)
    for place, found in keys.items():
        hot = np.nan_to_num(run.hot_minutes[place])
        at, names = np.array([each[0] for each in found]), np.array([each[1] for each in found])
        newest = np.searchsorted(at, ends, side="left") - 1
        held = (hot > 0) & (newest >= 0) & (ends - at[newest] <= KNOWN_SECONDS)
        for name in np.unique(names[newest[held]]):
            mine = np.where(held & (names[newest] == name), hot, 0.0)
            out[str(name)][place] = np.add.reduceat(mine, np.arange(0, steps, HOUR_STEPS))
    return out


class Judgement(NamedTuple):
    """Why a cycle left a node hot; see `Blocked`."""

    at: float
    code: str
    message: str
    pod: str = ""


def judgements(replay: Replay, run: ReplayRun) -> dict[int, list[Judgement]]:
    """Node -> its reasons, oldest first. A cycle that stopped without naming nodes is a reason for every hot one."""
    places = {node: number for number, node in enumerate(replay.nodes)}
    out: dict[int, list[Judgement]] = defaultdict(list)
    for cycle in sorted(run.cycles, key=lambda each: each.at):
        for each in cycle.blocked:
            if each.node in places:
                out[places[each.node]].append(Judgement(cycle.at, each.code or STOPPED, each.message, each.pod))
        if cycle.stopped and not cycle.blocked:
            for place in _hot_at(replay, run, cycle):
                out[int(place)].append(Judgement(cycle.at, STOPPED, cycle.stopped))
    return out


def _hot_at(replay: Replay, run: ReplayRun, cycle: ReplayedCycle) -> NDArray[np.intp]:
    """Rows of the nodes that were hot when a cycle ran."""
    step = int((cycle.at - replay.start) // STEP_SECONDS)
    if not 0 <= step < run.hot_minutes.shape[1]:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.nan_to_num(run.hot_minutes[:, step]) > 0)


def _blocked_line(
    replay: Replay,
    run: ReplayRun,
    code: str,
    of_nodes: Mapping[int, Grid32],
    judged: Mapping[int, Sequence[Judgement]],
) -> BlockedLine:
    """`of_nodes`: node -> (hours,) minutes that the reason kept it hot."""
    hours = np.array(list(of_nodes.values()))
    worst = int(hours.sum(axis=0).argmax())
    since = replay.start + worst * HOUR_STEPS * STEP_SECONDS
    until = since + HOUR_STEPS * STEP_SECONDS
    most = list(of_nodes)[int(hours[:, worst].argmax())]
    messages = [each.message for each in judged[most] if each.code == code and each.at < until]
    return BlockedLine(
        run=run.label,
        code=code,
        meaning=Reason(code).sentence if code in {each.value for each in Reason} else "nothing was decided",
        hot_node_hours=float(hours.sum()) / HOUR_MINUTES,
        nodes=len(of_nodes),
        worst_at=since,
        worst_nodes=int(np.count_nonzero(hours[:, worst])),
        example=messages[-1] if messages else "",
    )
