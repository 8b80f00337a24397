"""The history that forecasts of a replay are made from: the days before the recording, and what was simulated since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.measured.history import (
    DAY_SECONDS,
    SLOTS,
    STEP_SECONDS,
    DayBlock,
    Grid,
    StoredDay,
    block_units,
    slot_of,
)
from rebalancer.model.notation.resource_names import CPU
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import Wide

KEPT_DAYS = 2
"""Days of simulated steps that are kept one by one; older ones are in the day store."""


class SimulatedPast:
    """Usage of each step by pod and node."""

    def __init__(self, resources: Sequence[str]) -> None:
        self._resources = resources
        self.steps: dict[tuple[int, int], tuple[Wide, Mapping[str, np.ndarray]]] = {}
        """(day, slot) -> pods, and resource -> their amounts in units of day blocks."""
        self.nodes: dict[str, dict[tuple[int, int], np.ndarray]] = {name: {} for name in resources}

    def add(self, cluster: SimulatedCluster, step: int) -> None:
        """Keep a step that has ended."""
        state = cluster.state
        key = slot_of(cluster.recording.start + step * STEP_SECONDS)
        rows = state.carrying()
        loads = state.pods.load[rows]
        amounts = {
            name: (state.loads.usage[name].at(loads, step) * block_units(name)).astype(np.float32)
            for name in self._resources
        }
        self.steps[key] = rows, amounts
        for name in self._resources:
            if name == CPU:
                capacity = cluster.recording.nodes.cpu_capacity_millicores
                node = cluster.share[:, step] * capacity
            else:
                count = len(cluster.recording.nodes)
                of_pods = np.bincount(state.pods.node[rows], weights=amounts[name], minlength=count)
                outside = state.loads.elsewhere[name][:, step] * block_units(name)
                node = np.where(state.nodes.there, of_pods + outside, np.nan)
            self.nodes[name][key] = node.astype(np.float32)
        for old in [each for each in self.steps if each[0] < key[0] - KEPT_DAYS]:
            del self.steps[old]
            for name in self._resources:
                del self.nodes[name][old]

    def block(self, cluster: SimulatedCluster, resource: str, day: int, end: int, before: DayBlock | None) -> DayBlock:
        """A day up to a slot; `before` has what was measured of it before the recording began."""
        state, recording = cluster.state, cluster.recording
        slots = [slot for slot in range(end) if (day, slot) in self.steps]
        rows = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(self.steps[day, slot][0] for slot in slots)]))
        grid = np.full((len(rows), SLOTS), np.nan, dtype=np.float32)
        node_grid = np.full((len(recording.nodes), SLOTS), np.nan, dtype=np.float32)
        for slot in slots:
            there, amounts = self.steps[day, slot]
            grid[np.searchsorted(rows, there), slot] = amounts[resource]
            node_grid[:, slot] = self.nodes[resource][day, slot]
        pods = recording.pods
        spaces = pods.namespace[state.loads.pod[state.pods.load[rows]]]
        names = [
            f"{recording.namespaces[space]}/{state.pods.names[row]}"
            for space, row in zip(spaces.tolist(), rows.tolist(), strict=True)
        ]
        begun = slot_of(recording.start)
        earlier = before if before is not None and day == begun[0] else None
        pod_names, pod_grid = tuple(names), grid
        node_names, all_nodes = recording.nodes.names, node_grid
        if earlier is not None:
            pod_names, pod_grid = _joined(names, grid, earlier.pods, earlier.pod_millicores, begun[1])
            node_names, all_nodes = _joined(node_names, node_grid, earlier.nodes, earlier.node_millicores, begun[1])
        return DayBlock(day=day, pods=pod_names, pod_millicores=pod_grid, nodes=node_names, node_millicores=all_nodes)


def _joined(
    names: Sequence[str], grid: Grid, earlier: Sequence[str], values: Grid, until: int
) -> tuple[tuple[str, ...], Grid]:
    """Rows of both by name; `values` count up to a slot. Of rows with one name the last known value counts."""
    number: dict[str, int] = {}
    for name in (*earlier, *names):
        number.setdefault(name, len(number))
    out = np.full((len(number), SLOTS), np.nan, dtype=np.float32)
    out[[number[name] for name in earlier], :until] = values[:, :until]
    for row, name in enumerate(names):
        known = np.isfinite(grid[row])
        out[number[name], known] = grid[row, known]
    return tuple(number), out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pull:
    block: DayBlock
    warnings: Sequence[str] = ()

    def advance(self) -> bool:
        return True

    def onto(self, old: DayBlock | None) -> DayBlock | None:
        return self.block


class ReplayedHistory:
    """`model.measured.history.HistorySource` of one resource."""

    identity = "replay"

    def __init__(self, cluster: SimulatedCluster, past: SimulatedPast, resource: str) -> None:
        self._cluster, self._past, self._resource = cluster, past, resource
        self._before = {each.day: each for each in cluster.recording.before.get(resource, ())}

    def seconds_ahead(self) -> float | None:
        """The clocks agree."""
        return 0.0

    def pull(self, day: int, *, first: int, end: int, snapshot: ClusterSnapshot) -> _Pull:
        """A day up to `end`."""
        block = self._past.block(self._cluster, self._resource, day, end, self._before.get(day))
        return _Pull(block=block)


class DaysInMemory:
    """`model.measured.history.DayStore`."""

    def __init__(self, days: Sequence[DayBlock]) -> None:
        self._days = {each.day: each for each in days}

    def days(self) -> Mapping[int, StoredDay]:
        """The stored days."""
        return {
            day: StoredDay(day=day, complete=each.complete, filled=each.filled, notes=each.notes)
            for day, each in self._days.items()
        }

    def load(self, day: int) -> DayBlock | None:
        """None when it isn't stored."""
        return self._days.get(day)

    def nodes(self, day: int) -> tuple[Sequence[str], Grid] | None:
        """Nodes of a day."""
        block = self._days.get(day)
        return None if block is None else (block.nodes, block.node_millicores)

    def save(self, block: DayBlock) -> None:
        """Keep it."""
        self._days[block.day] = block

    def drop(self, *, before: int) -> None:
        """Remove all earlier days."""
        self._days = {day: each for day, each in self._days.items() if day >= before}

    def take_notes(self) -> tuple[str, ...]:
        """Nothing is ever removed for a reason."""
        return ()


def keepers_of(cluster: SimulatedCluster, clock: Clock) -> Mapping[str, HistoryKeeper]:
    """Resource -> keeper of its days; the cluster keeps its past from now on."""
    resources = list(cluster.state.loads.usage)
    past = SimulatedPast(resources)
    cluster.past = partial(past.add, cluster)
    today = int(cluster.recording.start // DAY_SECONDS)
    return {
        name: HistoryKeeper(
            source=ReplayedHistory(cluster, past, name),
            blocks=DaysInMemory(
                [
                    replace(each, complete=True, filled=SLOTS)
                    for each in cluster.recording.before.get(name, ())
                    if each.day < today
                ]
            ),
            clock=clock,
            resource=name,
        )
        for name in resources
    }
