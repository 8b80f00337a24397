"""CPU as recorded cycles read it, for the cycles of a replay.

Steps are means over five minutes; what a cycle read is a mean over its own rate window, to its instant. The recorded
run is simulated beside the readings, and what a reading differs from it by is the error of the steps at that time. This
error is added to what a run simulates: as long as its pods are where they were, its cycles read exactly what was read
then, and afterwards the same, corrected by what moving pods has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.recordings.recording import RecordedReadings, Recording
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import Loads, Values, Wide
from rebalancer.replay.simulation.pods import NEVER

NEAR_SECONDS = STEP_SECONDS / 2
"""A reading says something of the error of the steps until so long before and after it."""


class CycleTimes:
    """When the cycles of a strategy begin: at those of the recording, where there is one near."""

    def __init__(self, recording: Recording) -> None:
        readings, self._start = recording.readings, recording.start
        cycles = np.zeros(0) if readings is None else readings.at[readings.cycle]
        # before, a rate window isn't known
        self._cycles = cycles[cycles >= recording.start + STEP_SECONDS]

    def first(self, interval: float) -> float:
        """The first of a run."""
        early = self._cycles[self._cycles < self._start + STEP_SECONDS + interval]
        return float(early[0]) if len(early) else self.after(self._start, interval)

    def after(self, at: float, interval: float) -> float:
        """The next one."""
        due = at + interval
        near = self._cycles[slice(*np.searchsorted(self._cycles, (due - interval / 2, due + interval / 2)))]
        return float(near[np.argmin(np.abs(near - due))]) if len(near) else due


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Readings less what the recorded run simulates at their times, in millicores."""

    readings: RecordedReadings
    node: Values
    """Of each of `readings.node_millicores`."""
    departed: Values
    """Of each of `readings.departed_millicores`."""
    pod: Values
    """Of each of `readings.pod_millicores`; 0 for pods that weren't there."""
    load: Wide
    """Load of each of `readings.pod`, in the run."""

    def of_nodes(self, at: float, *, now: float, count: int) -> Floats:
        """(nodes,) error at a time, of the nearest reading until now; 0 where none is near."""
        starts, index = self.readings.node_start, self.readings.node
        return self._nearest(self._all, starts, index, self.node, at=at, now=now, count=count)

    def of_departed(self, *, now: float, count: int) -> Floats:
        """(nodes,) error of what is measured of pods that have left, now."""
        starts, index = self.readings.node_start, self.readings.node
        # samples between cycles say nothing of them
        cycles = np.flatnonzero(self.readings.cycle)
        return self._nearest(cycles, starts, index, self.departed, at=now, now=now, count=count)

    def of_loads(self, *, now: float, count: int) -> Floats:
        """(loads,) the same of loads now."""
        return self._nearest(self._all, self.readings.pod_start, self.load, self.pod, at=now, now=now, count=count)

    @property
    def _all(self) -> Wide:
        return np.arange(len(self.readings.at))

    def _nearest(
        self, among: Wide, starts: Wide, index: Wide | Ints, errors: Values, *, at: float, now: float, count: int
    ) -> Floats:
        times, out = self.readings.at[among], np.zeros(count)
        low = np.searchsorted(times, at - NEAR_SECONDS)
        high = np.searchsorted(times, min(at + NEAR_SECONDS, now), "right")
        near = among[low:high]
        # the nearest is written last
        for each in near[np.argsort(-np.abs(times[low:high] - at), kind="stable")].tolist():
            part = slice(int(starts[each]), int(starts[each + 1]))
            out[index[part]] = errors[part]
        return out


def errors_of(
    recorded: SimulatedCluster, readings: RecordedReadings, loads: Loads, *, stopping: Callable[[], bool]
) -> Errors:
    """Simulate the recorded run to the last reading, or until `stopping`. Its loads are the recorded pods; `loads` are
    those of the run that the errors are for."""
    state = recorded.state
    node, gone = (np.zeros(len(readings.node), dtype=np.float32) for _ in range(2))
    pod = np.zeros(len(readings.pod), dtype=np.float32)
    for each, (at, window) in enumerate(zip(readings.at.tolist(), readings.window_seconds.tolist(), strict=True)):
        if stopping():
            break
        recorded.run_to(at)
        part = slice(int(readings.node_start[each]), int(readings.node_start[each + 1]))
        node[part] = readings.node_millicores[part] - recorded.counters.mean(at, window)[readings.node[part]]
        if readings.cycle[each]:
            gone[part] = readings.departed_millicores[part] - state.departed(window)[readings.node[part]]
        part = slice(int(readings.pod_start[each]), int(readings.pod_start[each + 1]))
        rows = state.current[readings.pod[part]]
        there = (rows >= 0) & (state.pods.bound[rows] < NEVER)
        pod[part][there] = readings.pod_millicores[part][there] - state.pod_means(rows[there], window)
    load = loads.of_pods(len(state.loads))[readings.pod]
    return Errors(readings=readings, node=node, departed=gone, pod=pod, load=load)
