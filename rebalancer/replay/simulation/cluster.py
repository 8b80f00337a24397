"""The simulated cluster: nodes come and go as recorded, pods run the recorded loads, and kube-scheduler's model places
every pod that arrives or replaces another one.

Time advances by events. Between two of them the pods are the same, and so are the rates of the nodes' CPU counters.
"""

import heapq
import math
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from rebalancer.model.history import STEP_SECONDS
from rebalancer.model.recording import Recording
from rebalancer.model.replay import Grid32
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.model.snapshot import Bools, Floats
from rebalancer.model.usage import CPU
from rebalancer.placement.pending import MADE_AFTERWARDS
from rebalancer.replay.simulation.counters import TICK_SECONDS, Counters
from rebalancer.replay.simulation.loads import Loads, Wide, top_owners
from rebalancer.replay.simulation.scheduling import Scheduling
from rebalancer.replay.simulation.snapshots import Snapshots

STOP_SECONDS = 10.0
"""From the eviction to the end of its containers, where the grace period isn't shorter."""
BIND_SECONDS = 1.0
"""From the creation of a replacement to its first look by the scheduler."""
LOST_WITH_NODE_SECONDS = 600.0
"""A load that ends so soon after its node has left ended with it."""
SAME_SECONDS = 60.0
"""Two replacements of a load that were made so close together are one."""
STEERED = "recorded"
"""Value of a soft taint of the recording."""
NONE = -1
NEVER = math.inf


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


class Past(Protocol):
    """Keeps what was used."""

    def add(self, cluster: "SimulatedCluster", step: int) -> None:
        """A step has ended; `share` has it."""
        ...


class SimulatedCluster:
    """See the module. Nodes and loads are those of the recording, by index; pods are indices that only grow."""

    def __init__(  # noqa: PLR0915 - the columns of one table
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
        self.recording, self.loads = recording, loads
        self.now = recording.start
        self.step = 0
        nodes, count = len(recording.nodes), len(loads)
        room = max(2 * count, 64)
        self._soft_taints = recording.soft_taints if as_recorded else ()
        self.past: Past | None = None
        """What pods and nodes used, for forecasts; None where nothing is kept."""
        self.count = 0
        """Pods so far."""
        self.load = np.zeros(room, dtype=np.int64)
        self.node = np.full(room, NONE, dtype=np.int64)
        self.created, self.bound, self.ready_at = (np.full(room, NEVER) for _ in range(3))
        self.going_at, self.gone_at, self.from_at = (np.full(room, NEVER) for _ in range(3))
        """Terminating since, gone since, and carrying its load since."""
        self.recorded = np.full(room, NONE, dtype=np.int64)
        """The recorded pod that each one is: the first of its load, or the replacement after the same eviction."""
        self.names: list[str] = []
        self.uids: list[str] = []
        self.current = np.full(count, NONE, dtype=np.int64)
        """(loads,) the newest pod of each."""
        self._terminating: dict[int, None] = {}
        """Evicted pods that have not left yet."""
        self.replacements = np.zeros(count, dtype=np.int32)
        """(loads,) pods that were made after an eviction or the loss of a node."""
        self.row_of: dict[str, int] = {}
        """uid -> pod that is there."""
        self.there: Bools = (recording.node_joined <= self.now) & (self.now < recording.node_left)
        self.ready: Bools = self.there & recording.node_ready[:, 0]
        self.cordoned: Bools = recording.node_unschedulable[:, 0].copy()
        self.taints: dict[int, tuple[str, float, bool]] = {}
        """Node -> value of our taint, since when, and whether it is our cordon."""
        self.nodes_version = 0
        """Changes with the nodes, their conditions and our taints."""
        self.pods_version = 0
        self._alive: Wide = np.zeros(0, dtype=np.int64)
        self._alive_at = -1
        self._events: list[Due] = []
        self.waiting: dict[int, None] = {}
        """Pods that the scheduler has found no node for, oldest first."""
        self._uncarried: dict[int, None] = {}
        """Loads that no pod carries until a replacement is Ready."""
        self._service: Wide = top_owners(recording)[recording.pods.owner[loads.pod]]
        self._of_service = _grouped(self._service)
        self._carried: Floats | None = None
        """(nodes,) millicores of the loads that pods carry, and outside of pods; None = to be summed up again."""
        self._rate: Floats | None = None
        """The same with the loads that no pod carries; None = to be added again."""
        self.counters = Counters(nodes, start=self.now, rate=self._rate_now, remembered_seconds=remembered_seconds)
        self.share: Grid32 = np.full((nodes, recording.steps), np.nan, dtype=np.float32)
        self._next_tick = self.now
        self.snapshots = Snapshots(self)
        self.scheduling = Scheduling(self, seed=seed, config=scheduler, as_recorded=as_recorded, unsure=unsure)
        self._begin()

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
        self.now = max(self.now, at)

    def _tick(self) -> None:
        """Every minute: sample the counters; at the end of a step, begin the next one."""
        start, at = self.recording.start, self._next_tick
        self.counters.sample()
        self._next_tick = at + TICK_SECONDS
        minute = round((at - start) / TICK_SECONDS)
        if minute and minute * TICK_SECONDS % STEP_SECONDS == 0:
            self._end_step(round(minute * TICK_SECONDS / STEP_SECONDS))
        if self.waiting:
            self._retry()

    def _end_step(self, step: int) -> None:
        done = step - 1
        mean = self.counters.mean_of_step()
        if done < self.recording.steps:
            capacity = np.maximum(self.recording.nodes.cpu_capacity_millicores, 1.0)
            self.share[:, done] = np.where(self.there, mean / capacity, np.nan)
            if self.past is not None:
                self.past.add(self, done)
        self.step = min(step, self.recording.steps - 1)
        self._carried = self._rate = None
        ready = self.there & self.recording.node_ready[:, self.step]
        cordoned = self.recording.node_unschedulable[:, self.step]
        if not (np.array_equal(ready, self.ready) and np.array_equal(cordoned, self.cordoned)):
            self.ready, self.cordoned = ready, cordoned.copy()
            self._nodes_changed()

    def steps_between(self, begin: float, end: float) -> list[tuple[int, float, float]]:
        """The steps that a time span touches, each with the part of it that lies in the step."""
        start, found, at = self.recording.start, [], max(begin, self.recording.start)
        while at < end:
            step = int((at - start) // STEP_SECONDS)
            last = min(start + (step + 1) * STEP_SECONDS, end)
            found.append((min(step, self.recording.steps - 1), at, last))
            at = last
        return found

    def _rate_now(self) -> Floats:
        """(nodes,) millicores."""
        if self._carried is None:
            rows, nodes = self.carrying(), len(self.recording.nodes)
            usage = self.loads.usage[CPU].at(self.load[rows], self.step)
            self._carried = np.bincount(self.node[rows], weights=usage, minlength=nodes).astype(np.float64)
            self._carried += np.where(self.there, self.loads.elsewhere[CPU][:, self.step], 0.0)
        if self._rate is None:
            self._rate = self._carried.copy() if self._uncarried else self._carried
            for load in self._uncarried:
                siblings = self.siblings(load)
                if len(siblings):
                    surplus = self.loads.usage[CPU].of(load, self.step)
                    self._rate += np.bincount(self.node[siblings], minlength=len(self._rate)) * (
                        surplus / len(siblings)
                    )
        return self._rate

    def _carries(self, row: int, sign: int) -> None:
        """A pod begins (1) or ends (-1) to carry its load."""
        if self._carried is not None:
            self._carried[self.node[row]] += sign * self.loads.usage[CPU].of(int(self.load[row]), self.step)

    # ---- who is there

    def alive(self) -> Wide:
        """Pods that are there, in the order of their creation."""
        if self._alive_at != self.pods_version:
            self._alive = np.flatnonzero(self.gone_at[: self.count] == NEVER)
            self._alive_at = self.pods_version
        return self._alive

    def carrying(self) -> Wide:
        """Pods that run and carry their load."""
        rows = self.alive()
        return rows[(self.node[rows] >= 0) & (self.from_at[rows] <= self.now)]

    def siblings(self, load: int) -> Wide:
        """Ready pods of the other loads of a load's service."""
        service = int(self._service[load])
        if service < 0:
            return np.zeros(0, dtype=np.int64)
        loads = self._of_service[service]
        rows = self.current[loads[loads != load]]
        rows = rows[rows >= 0]
        ready = (self.ready_at[rows] <= self.now) & (self.going_at[rows] == NEVER) & (self.gone_at[rows] == NEVER)
        found: Wide = rows[ready]
        return found

    def kind_of_owner(self, load: int) -> str:
        """Kind of a load's direct controlling owner; empty for none."""
        owner = int(self.recording.pods.owner[self.loads.pod[load]])
        return self.recording.owners[owner].kind if owner >= 0 else ""

    # ---- events

    def _begin(self) -> None:
        recording, loads, start = self.recording, self.loads, self.recording.start
        marks = {mark for each in self._soft_taints for mark in (each.since, each.until)}
        for at in {*recording.node_joined.tolist(), *recording.node_left.tolist(), *marks}:
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
        if self.waiting and due.event in (Event.NODES, Event.ENDS, Event.GONE):
            self._retry()

    def _push(self, at: float, event: Event, argument: int) -> None:
        heapq.heappush(self._events, Due(at, event, argument))

    def _place_as_recorded(self, load: int) -> None:
        pods, pod = self.recording.pods, int(self.loads.pod[load])
        row = self._new(load, float(self.loads.created[load]))
        self.node[row], self.bound[row] = int(pods.node[pod]), float(self.loads.bound[load])
        ready = float(pods.ready[pod])
        self.ready_at[row] = ready if ready < NEVER else self.loads.bound[load] + self.loads.start_up[load]
        self.from_at[row] = self.loads.bound[load]
        if self.ready_at[row] > self.now:
            self._push(float(self.ready_at[row]), Event.READY, row)

    def _arrive(self, load: int) -> None:
        row = self._new(load, float(self.loads.created[load]))
        at = float(self.loads.bound[load])
        if at < NEVER:
            self._push(max(at, self.now), Event.BINDS, row)

    def _new(self, load: int, created: float) -> int:
        row = self.count
        if row == len(self.load):
            self._grow()
        number = int(self.replacements[load])
        pods, pod = self.recording.pods, self._recorded_pod(load)
        self.recorded[row] = pod
        first = int(self.loads.pod[load]) if pod < 0 else pod
        name, uid = pods.names[first], pods.uids[first]
        if pod < 0:
            uid = f"{uid}-{number}"
            if self.kind_of_owner(load) != "StatefulSet":
                name = f"{name.rpartition('-')[0] or name}-r{load:x}-{number}"
        self.load[row], self.created[row] = load, created
        self.names.append(name)
        self.uids.append(uid)
        self.row_of[uid] = row
        self.current[load] = row
        self.count += 1
        self._pods_changed()
        return row

    def _recorded_pod(self, load: int) -> int:
        """The recorded pod that a load's next one is, NONE for a replacement that was never there."""
        if not self.replacements[load]:
            return int(self.loads.pod[load])
        pods = self.recording.pods
        for other in self.loads.replacements.get(load, ()):
            if abs(float(pods.created[other]) - self.now) <= SAME_SECONDS and pods.uids[other] not in self.row_of:
                return int(other)
        return NONE

    def _grow(self) -> None:
        for name in ("created", "bound", "ready_at", "going_at", "gone_at", "from_at"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.full(len(column), NEVER)]))
        self.load = np.concatenate([self.load, np.zeros_like(self.load)])
        self.node, self.recorded = (
            np.concatenate([column, np.full(len(column), NONE, dtype=np.int64)])
            for column in (self.node, self.recorded)
        )

    def _bind(self, row: int) -> None:
        """Place a pod, or let it wait."""
        if self.gone_at[row] < NEVER:
            return
        node = self.scheduling.place(row)
        if node < 0:
            self.waiting[row] = None
            return
        self.waiting.pop(row, None)
        load = int(self.load[row])
        self.node[row], self.bound[row] = node, self.now
        ready = self.now + float(self.loads.start_up[load])
        if not self.replacements[load]:
            # what a replacement does before it is Ready isn't recorded
            self.from_at[row] = self.now
            self._carries(row, 1)
        elif self.recorded[row] >= 0 and (then := float(self.recording.pods.ready[self.recorded[row]])) < NEVER:
            ready = max(then, self.now)
        self._push(ready, Event.READY, row)
        self._pods_changed()

    def _retry(self) -> None:
        for row in list(self.waiting):
            if self.scheduling.may_fit(row):
                self._bind(row)

    def _become_ready(self, row: int) -> None:
        if self.gone_at[row] < NEVER or self.node[row] < 0:
            return
        self.ready_at[row] = self.now
        if self.from_at[row] == NEVER:
            self.from_at[row] = self.now
            self._carries(row, 1)
            self._uncarried.pop(int(self.load[row]), None)
        self._pods_changed()

    def _end(self, load: int) -> None:
        """A load ends, with every pod of it."""
        for row in [row for row in self._terminating if self.load[row] == load]:
            self._remove(row)
        if (current := int(self.current[load])) >= 0 and self.gone_at[current] == NEVER:
            self._remove(current)
        self._uncarried.pop(load, None)
        self.current[load] = NONE

    def _leave(self, row: int) -> None:
        """An evicted pod has left its node."""
        if self.gone_at[row] < NEVER:
            return
        load = int(self.load[row])
        self._remove(row)
        if self.current[load] == row:
            self._replace(load)
        if self.from_at[self.current[load]] == NEVER:
            self._uncarried[load] = None

    def _remove(self, row: int) -> None:
        if self.node[row] >= 0 and self.from_at[row] < NEVER:
            self._carries(row, -1)
        self.gone_at[row] = self.now
        self._terminating.pop(row, None)
        self.row_of.pop(self.uids[row], None)
        self.waiting.pop(row, None)
        if self.node[row] >= 0:
            self.scheduling.leaves(row)
        self._pods_changed()

    def _replace(self, load: int) -> int:
        self.replacements[load] += 1
        row = self._new(load, self.now)
        pod = self.recorded[row]
        bound = float(self.recording.pods.bound[pod]) if pod >= 0 else NEVER
        self._push(max(bound, self.now) if bound < NEVER else self.now + BIND_SECONDS, Event.BINDS, row)
        return row

    def evict(self, row: int) -> None:
        """Begin to terminate a pod. Its replacement is made at once, or when it is gone where its owner does so."""
        load = int(self.load[row])
        self.going_at[row] = self.now
        self._terminating[row] = None
        template = self.recording.pod_templates[int(self.recording.pods.template[self.loads.pod[load]])]
        self._push(self.now + min(template.grace_seconds, STOP_SECONDS), Event.GONE, row)
        if self.kind_of_owner(load) not in MADE_AFTERWARDS:
            self._replace(load)
        self._pods_changed()

    # ---- nodes

    def _change_nodes(self) -> None:
        recording = self.recording
        before = self.there
        self.there = (recording.node_joined <= self.now) & (self.now < recording.node_left)
        self.ready = self.there & recording.node_ready[:, self.step]
        for node in np.flatnonzero(before & ~self.there).tolist():
            self.taints.pop(node, None)
            self._lose(node)
        for taint in self._soft_taints:
            if taint.since == self.now and self.there[taint.node]:
                self.taints[taint.node] = (STEERED, self.now, False)
            elif taint.until == self.now:
                self.taints.pop(taint.node, None)
        self._nodes_changed()

    def _lose(self, node: int) -> None:
        """A node has left: what still has to run there runs elsewhere."""
        rows = self.alive()
        for row in rows[self.node[rows] == node].tolist():
            load = int(self.load[row])
            was_current = self.current[load] == row
            self._remove(row)
            if not was_current or self.loads.fixed[load]:
                continue
            if self.loads.ended[load] > self.now + LOST_WITH_NODE_SECONDS and self.kind_of_owner(load):
                self._replace(load)
                self._uncarried[load] = None
            else:
                self.current[load] = NONE

    def taint(self, node: int, value: str, *, cordon: bool) -> None:
        """Set our taint, or change it."""
        self.taints[node] = (value, self.now, cordon)
        self._nodes_changed()

    def untaint(self, node: int) -> None:
        """Remove our taint and our cordon."""
        if self.taints.pop(node, None) is not None:
            self._nodes_changed()

    def _nodes_changed(self) -> None:
        self.nodes_version += 1
        self._carried = self._rate = None

    def _pods_changed(self) -> None:
        self.pods_version += 1
        self._rate = None


def _grouped(service: Wide) -> Mapping[int, Wide]:
    """Service -> its loads."""
    order = np.argsort(service, kind="stable")
    names, begins = np.unique(service[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, begins[1:]), strict=True)) if len(names) else {}
