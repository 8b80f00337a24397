"""The simulated cluster: nodes come and go as recorded, pods run the recorded loads, and kube-scheduler's model places
every pod that arrives or replaces another one.

Time advances by events. Between two of them the pods are the same, and so are the rates of the nodes' CPU counters.
"""

import heapq
from collections.abc import Callable, Collection
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import Grid32
from rebalancer.placement.landing.pending import MADE_AFTERWARDS
from rebalancer.replay.simulation.counters import TICK_SECONDS, Counters
from rebalancer.replay.simulation.demand import Demand
from rebalancer.replay.simulation.loads import Loads
from rebalancer.replay.simulation.nodes import NodeTable
from rebalancer.replay.simulation.pods import NEVER, NONE, PodTable
from rebalancer.replay.simulation.scheduling import Scheduling
from rebalancer.replay.simulation.snapshots import Snapshots
from rebalancer.replay.simulation.state import ClusterState

STOP_SECONDS = 10.0
"""From the eviction to the end of its containers, where the grace period isn't shorter."""
BIND_SECONDS = 1.0
"""From the creation of a replacement to its first look by the scheduler."""
LOST_WITH_NODE_SECONDS = 600.0
"""A load that ends so soon after its node has left ended with it."""
SAME_SECONDS = 60.0
"""Two replacements of a load that were made so close together are one."""


class Event(IntEnum):
    """What happens at a time; of two at one time the lower comes first."""

    NODES = 0
    """A node joins or leaves, or a recorded soft taint does."""
    ENDS = 1
    """A load ends. Argument: load."""
    GONE = 2
    """An evicted pod has left. Argument: pod."""
    ARRIVES = 3
    """The first pod of a load is created. Argument: load."""
    BINDS = 4
    """The scheduler looks at a pod for the first time. Argument: pod."""
    READY = 5
    """A pod is Ready. Argument: pod."""


class Due(NamedTuple):
    """An entry of the queue of events."""

    at: float
    event: Event
    argument: int


class SimulatedCluster:
    """See the module."""

    def __init__(
        self,
        recording: Recording,
        loads: Loads,
        *,
        seed: int,
        scheduler: SchedulerConfig,
        as_recorded: bool = False,
        remembered_seconds: float = 3600.0,
        unsure: Collection[str] = (),
    ) -> None:
        """`as_recorded`: every pod goes where it went, with the soft taints that rebalancer set then.
        `remembered_seconds`: how far back CPU of nodes is read. `unsure`: as of `Scheduling`."""
        count = len(loads)
        self.state = ClusterState(
            recording=recording,
            loads=loads,
            nodes=NodeTable(recording, recording.soft_taints if as_recorded else ()),
            pods=PodTable(max(2 * count, 64)),
            now=recording.start,
            current=np.full(count, NONE, dtype=np.int64),
            replacements=np.zeros(count, dtype=np.int64),
        )
        self.past: Callable[[int], None] | None = None
        """Called with each step that has ended, which `share` has; None where nothing is kept for forecasts."""
        self.share: Grid32 = np.full((len(recording.nodes), recording.steps), np.nan, dtype=np.float32)
        """(nodes, steps) CPU as a share of the capacity, NaN where the node wasn't there."""
        self.waiting_pod_minutes = 0.0
        """Time in which pods found no node, of all pods together."""
        self._terminating: dict[int, None] = {}
        """Evicted pods that have not left yet."""
        self._events: list[Due] = []
        self._next_tick = recording.start
        self._demand = Demand(self.state)
        self.counters = Counters(
            len(recording.nodes), start=recording.start, rate=self._demand.rate, remembered_seconds=remembered_seconds
        )
        self.snapshots = Snapshots(self.state)
        self.scheduling = Scheduling(
            self.state, self.snapshots, seed=seed, config=scheduler, as_recorded=as_recorded, unsure=unsure
        )
        self._begin()

    @property
    def now(self) -> float:
        """Seconds since the epoch, in the recording."""
        return self.state.now

    @property
    def recording(self) -> Recording:
        """What is simulated."""
        return self.state.recording

    # ---- time

    def run_to(self, until: float) -> None:
        """Let everything happen that is due up to a time."""
        while True:
            due = self._events[0].at if self._events else NEVER
            at = min(due, self._next_tick)
            if at > until:
                break
            self._pass(at)
            if due <= self._next_tick:
                self._happen(heapq.heappop(self._events))
            else:
                self._tick()
        self._pass(until)

    def _pass(self, at: float) -> None:
        self.counters.advance(at)
        self.state.now = max(self.now, at)

    def _tick(self) -> None:
        """Every minute: sample the counters; at the end of a step, begin the next one."""
        start, at = self.recording.start, self._next_tick
        self.counters.sample()
        self._next_tick = at + TICK_SECONDS
        minute = round((at - start) / TICK_SECONDS)
        if minute and minute * TICK_SECONDS % STEP_SECONDS == 0:
            self._end_step(round(minute * TICK_SECONDS / STEP_SECONDS))
        if self.state.waiting:
            self.waiting_pod_minutes += len(self.state.waiting) * TICK_SECONDS / 60.0
            self._retry()

    def _end_step(self, step: int) -> None:
        done = step - 1
        mean = self.counters.mean_of_step()
        if done < self.recording.steps:
            capacity = np.maximum(self.recording.nodes.cpu_capacity_millicores, 1.0)
            self.share[:, done] = np.where(self.state.nodes.there, mean / capacity, np.nan)
            if self.past is not None:
                self.past(done)
        self.state.step = min(step, self.recording.steps - 1)
        self._demand.begin_step()
        self.state.nodes.begin_step(self.state.step)

    # ---- events

    def _begin(self) -> None:
        recording, loads, start = self.recording, self.state.loads, self.recording.start
        for at in self.state.nodes.changes():
            if start < at < recording.end:
                self._events.append(Due(at, Event.NODES, 0))
        known = (loads.bound < recording.end) | ((loads.bound == NEVER) & (loads.created < recording.end))
        for load in np.flatnonzero(known & (loads.ended > start)).tolist():
            if loads.bound[load] <= start:
                self._place_as_recorded(load)
            elif loads.created[load] <= start:
                self._arrive(load)
            else:
                self._events.append(Due(float(loads.created[load]), Event.ARRIVES, load))
            if loads.ended[load] < NEVER:
                self._events.append(Due(float(loads.ended[load]), Event.ENDS, load))
        heapq.heapify(self._events)

    def _happen(self, due: Due) -> None:
        match due.event:
            case Event.NODES:
                self._change_nodes()
            case Event.ENDS:
                self._end(due.argument)
            case Event.GONE:
                self._leave(due.argument)
            case Event.ARRIVES:
                self._arrive(due.argument)
            case Event.BINDS:
                self._bind(due.argument)
            case Event.READY:
                self._become_ready(due.argument)
        if self.state.waiting and due.event in (Event.NODES, Event.ENDS, Event.GONE):
            self._retry()

    def _push(self, at: float, event: Event, argument: int) -> None:
        heapq.heappush(self._events, Due(at, event, argument))

    def _place_as_recorded(self, load: int) -> None:
        loads, recorded, pods = self.state.loads, self.recording.pods, self.state.pods
        pod, row = int(loads.pod[load]), self._new(load, float(loads.created[load]))
        pods.node[row], pods.bound[row] = int(recorded.node[pod]), float(loads.bound[load])
        ready = float(recorded.ready[pod])
        pods.ready_at[row] = ready if ready < NEVER else loads.bound[load] + loads.start_up[load]
        pods.from_at[row] = loads.bound[load]
        if pods.ready_at[row] > self.now:
            self._push(float(pods.ready_at[row]), Event.READY, row)

    def _arrive(self, load: int) -> None:
        row = self._new(load, float(self.state.loads.created[load]))
        at = float(self.state.loads.bound[load])
        if at < NEVER:
            self._push(max(at, self.now), Event.BINDS, row)

    def _new(self, load: int, created: float) -> int:
        state, number = self.state, int(self.state.replacements[load])
        recorded, pod = self.recording.pods, self._recorded_pod(load)
        first = int(state.loads.pod[load]) if pod < 0 else pod
        name, uid = recorded.names[first], recorded.uids[first]
        if pod < 0:
            uid = f"{uid}-{number}"
            if state.kind_of_owner(load) != "StatefulSet":
                name = f"{name.rpartition('-')[0] or name}-r{load:x}-{number}"
        row = state.pods.add(name, uid, load=load, recorded=pod, created=created)
        state.current[load] = row
        return row

    def _recorded_pod(self, load: int) -> int:
        """The recorded pod that a load's next one is, NONE for a replacement that was never there."""
        loads, recorded = self.state.loads, self.recording.pods
        if not self.state.replacements[load]:
            return int(loads.pod[load])
        for other in loads.replacements.get(load, ()):
            near = abs(float(recorded.created[other]) - self.now) <= SAME_SECONDS
            if near and recorded.uids[other] not in self.state.pods.row_of:
                return int(other)
        return NONE

    def _bind(self, row: int) -> None:
        """Place a pod, or let it wait."""
        state, pods = self.state, self.state.pods
        if pods.gone_at[row] < NEVER:
            return
        node = self.scheduling.place(row)
        if node < 0:
            state.waiting[row] = None
            return
        state.waiting.pop(row, None)
        load = int(pods.load[row])
        pods.node[row], pods.bound[row] = node, self.now
        ready = self.now + float(state.loads.start_up[load])
        if not state.replacements[load]:
            # what a replacement does before it is Ready isn't recorded
            self._demand.begin(row)
        elif pods.recorded[row] >= 0 and (then := float(self.recording.pods.ready[pods.recorded[row]])) < NEVER:
            ready = max(then, self.now)
        self._push(ready, Event.READY, row)
        pods.version += 1

    def _retry(self) -> None:
        for row in list(self.state.waiting):
            if self.scheduling.may_fit(row):
                self._bind(row)

    def _become_ready(self, row: int) -> None:
        pods = self.state.pods
        if pods.gone_at[row] < NEVER or pods.node[row] < 0:
            return
        pods.ready_at[row] = self.now
        if pods.from_at[row] == NEVER:
            self._demand.begin(row)
        pods.version += 1

    def _end(self, load: int) -> None:
        """A load ends, with every pod of it."""
        pods, current = self.state.pods, self.state.current
        for row in [row for row in self._terminating if pods.load[row] == load]:
            self._remove(row)
        if (newest := int(current[load])) >= 0 and pods.gone_at[newest] == NEVER:
            self._remove(newest)
        self._demand.uncarried.pop(load, None)
        current[load] = NONE

    def _leave(self, row: int) -> None:
        """An evicted pod has left its node."""
        pods, current = self.state.pods, self.state.current
        if pods.gone_at[row] < NEVER:
            return
        load = int(pods.load[row])
        self._remove(row)
        if current[load] == row:
            self._replace(load)
        if pods.from_at[current[load]] == NEVER:
            self._demand.uncarried[load] = None

    def _remove(self, row: int) -> None:
        pods = self.state.pods
        self._demand.end(row)
        pods.remove(row, self.now)
        self._terminating.pop(row, None)
        self.state.waiting.pop(row, None)
        if pods.node[row] >= 0:
            self.scheduling.leaves(row)

    def _replace(self, load: int) -> int:
        self.state.replacements[load] += 1
        row = self._new(load, self.now)
        pod = self.state.pods.recorded[row]
        bound = float(self.recording.pods.bound[pod]) if pod >= 0 else NEVER
        self._push(max(bound, self.now) if bound < NEVER else self.now + BIND_SECONDS, Event.BINDS, row)
        return row

    def evict(self, row: int) -> None:
        """Begin to terminate a pod. Its replacement is made at once, or when it is gone where its owner does so."""
        recording, pods = self.recording, self.state.pods
        load = int(pods.load[row])
        pods.going_at[row] = self.now
        self._terminating[row] = None
        template = recording.pod_templates[int(recording.pods.template[self.state.loads.pod[load]])]
        self._push(self.now + min(template.grace_seconds, STOP_SECONDS), Event.GONE, row)
        if self.state.kind_of_owner(load) not in MADE_AFTERWARDS:
            self._replace(load)
        pods.version += 1

    def _change_nodes(self) -> None:
        for node in self.state.nodes.change(self.now, self.state.step):
            self._lose(node)

    def _lose(self, node: int) -> None:
        """A node has left: what still has to run there runs elsewhere."""
        state, pods = self.state, self.state.pods
        rows = pods.alive()
        for row in rows[pods.node[rows] == node].tolist():
            load = int(pods.load[row])
            was_current = state.current[load] == row
            self._remove(row)
            if not was_current or state.loads.fixed[load]:
                continue
            if state.loads.ended[load] > self.now + LOST_WITH_NODE_SECONDS and state.kind_of_owner(load):
                self._replace(load)
                self._demand.uncarried[load] = None
            else:
                state.current[load] = NONE
