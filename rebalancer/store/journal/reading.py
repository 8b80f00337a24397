"""Recordings from the journal.

Entries are a minute apart, so a time that no object has (Ready, end) is taken to be in the middle between the two
entries that it lies between. Pods are columns here too: seven days of 150,000 pods are half a million.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import STEP_SECONDS, DayBlock, date_of, slot_of
from rebalancer.model.notation.arrays import Bools, Ints
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.figures import clock_time, counted
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.jobs import with_failure_policies
from rebalancer.model.recordings.recorded_usage import days_before, recorded_usage
from rebalancer.model.recordings.recording import (
    CAME_BACK,
    Gap,
    RecordedAlert,
    RecordedPods,
    RecordedTaint,
    RecordedUsage,
    Recording,
)
from rebalancer.store.journal.budgets import Budgets
from rebalancer.store.journal.entries import (
    FIELDS,
    FINISHED,
    READY,
    AlertEntry,
    Entry,
    EvictionEntry,
    ImagesEntry,
    NewPodsEntry,
    NodeEntry,
    OwnerEntry,
    from_ints,
)
from rebalancer.store.journal.files import continuous, journal_days, read_day
from rebalancer.store.journal.nodes import NodeTimes, has_soft_taint, is_closed, node_columns, without_ours
from rebalancer.store.journal.readings import Readings
from rebalancer.store.journal.tables import POD, Growing, Indexed, Tables

GAP_SECONDS = 600.0
"""Entries further apart are a gap: the daemon appends one every minute."""

_DAYS_BEFORE = 8
"""Days before the recording, for forecasts."""


def recording_of(
    directory: Path,
    *,
    cluster: str,
    start: float,
    end: float,
    today: ClusterSnapshot,
    usage: Mapping[str, Sequence[DayBlock]],
) -> Recording:
    """The recording of [start, end), both multiples of STEP_SECONDS; `usage` has the days of each resource, oldest
    first, those before the recording included.

    Raises ConfigError where the journal has nothing of that time.
    """
    state = _State(start=start, steps=round((end - start) / STEP_SECONDS))
    for day in journal_days(directory, cluster):
        if not slot_of(start)[0] <= day <= slot_of(end - 1.0)[0]:
            continue
        skipped = 0
        for each in continuous(read_day(directory, cluster, day)):
            if isinstance(each, int):
                skipped += each
            elif each.at < end:
                state.apply(each)
        if skipped:
            state.note(f"{skipped} bytes of the journal of {date_of(day)} can't be read and are left out")
    if not state.times:
        raise ConfigError(
            f"{directory / cluster}: no journal from {clock_time(start)} to {clock_time(end)}: expected the folder "
            "of a daemon that ran then (REBALANCER_HISTORY_DIR)"
        )
    state.finish(end)
    return state.recording(cluster=cluster, today=today, usage=usage)


class _State:
    """The recording so far."""

    def __init__(self, *, start: float, steps: int) -> None:
        self.start, self.steps = start, steps
        self.times: list[float] = []
        self._gaps: list[Gap] = []
        self._tables = Tables()
        self._namespaces: Indexed[str] = Indexed()
        self._owners: Indexed[OwnerEntry] = Indexed()
        self._templates: Indexed[bytes] = Indexed()
        self._nodes: Indexed[str] = Indexed()
        self._node_entries: list[NodeEntry] = []
        self._node_times: list[NodeTimes] = []
        self._node_joined: list[float] = []
        self._node_left: list[float] = []
        self._node_ready: list[Bools] = []
        self._node_cordoned: list[Bools] = []
        self._absent: list[tuple[int, float, float]] = []
        """Node that came back under its name, since when it was gone, and until when."""
        self._tainted_since: dict[int, float] = {}
        self._taints: list[tuple[int, float, float]] = []
        """Node, since when it had our soft taint, and until when."""
        self._images: tuple[ImagesEntry, dict[int, str]] | None = None
        """Of the last keyframe, and the name of each of its nodes."""
        self._pods = Growing(POD)
        self._names: list[str] = []
        self._uids: dict[str, int] = {}
        self._budgets = Budgets(steps)
        self._evictions: dict[tuple[str, float], EvictionEntry] = {}
        self._alerts: dict[int, tuple[AlertEntry, float]] = {}
        self._readings = Readings(start=start, end=start + steps * STEP_SECONDS)

    def note(self, text: str, pods: int = 0) -> None:
        """Something that the journal doesn't say."""
        self._gaps.append(Gap(text, pods))

    def apply(self, entry: Entry) -> None:
        """The next entry."""
        if entry.cut:
            self.note(f"the journal of {date_of(slot_of(entry.at)[0])} was full at {clock_time(entry.at)}")
            return
        before = self.times[-1] if self.times else -np.inf
        keyframe = entry.previous is None
        if keyframe:
            self._tables = Tables()
            self._readings.restart()
        tables = self._tables
        tables.namespace += [self._namespaces[name] for name in entry.namespaces]
        for each in entry.owners:
            parent = tables.owner[each.parent] if each.parent >= 0 else -1
            tables.owner.append(self._owners[each._replace(parent=parent)])
        tables.template += [self._templates[blob] for blob in entry.templates]
        self._apply_nodes(entry, keyframe=keyframe)
        touched = self._apply_pods(entry, before, keyframe=keyframe)
        self._budgets.apply(entry, step=self._step(entry.at), first=not self.times)
        self._apply_alerts(entry, keyframe=keyframe)
        if entry.reading is not None:
            self._readings.apply(entry.reading, nodes=self._node_of(), pods=tables.pod.rows)
        for eviction in entry.evictions:
            self._evictions[eviction.uid, eviction.at] = eviction
        if max(before, self.start) + GAP_SECONDS < entry.at:
            self._missing(max(before, self.start), entry.at, touched if self.times else 0)
        self.times.append(entry.at)

    def finish(self, end: float) -> None:
        """Nothing follows."""
        if self.times[-1] + GAP_SECONDS < end:
            self._missing(max(self.times[-1], self.start), end, 0)

    def _missing(self, since: float, until: float, pods: int) -> None:
        self.note(
            f"the journal has nothing from {clock_time(since)} to {clock_time(until)}, so placements are carried on",
            pods,
        )

    # ---- nodes

    def _apply_nodes(self, entry: Entry, *, keyframe: bool) -> None:
        step = self._step(entry.at)
        for number, node in entry.nodes.items():
            index = self._tables.node[number] = self._nodes[node.name]
            if index == len(self._node_entries):
                self._node_entries.append(node)
                self._node_times.append(NodeTimes())
                self._node_joined.append(node.created if node.created > self.start else -np.inf)
                self._node_left.append(np.inf)
                self._node_ready.append(np.zeros(self.steps, dtype=np.bool_))
                self._node_cordoned.append(np.zeros(self.steps, dtype=np.bool_))
            self._note_taint(index, entry.at, is_set=has_soft_taint(node))
            kept = self._node_entries[index] = without_ours(node)
            self._node_times[index].had(kept, entry.at)
            if self._node_left[index] < np.inf:
                self._absent.append((index, self._node_left[index], entry.at))
            self._node_left[index] = np.inf
            self._node_ready[index][step:] = kept.ready
            self._node_cordoned[index][step:] = kept.unschedulable or is_closed(kept)
        left = [self._tables.node[number] for number in entry.nodes_left]
        if keyframe:
            there = set(self._tables.node.values())
            left = [at for at, until in enumerate(self._node_left) if until == np.inf and at not in there]
        before = self.times[-1] if self.times else entry.at
        for index in left:
            self._note_taint(index, entry.at, is_set=False)
            self._node_left[index] = (before + entry.at) / 2
            self._node_times[index].ended(self._node_left[index])
            self._node_ready[index][step:] = False
            # nothing was placed there since the entry before: it was drained, or gone
            self._node_cordoned[index][self._step(before) :] = True
        if entry.images is not None:
            self._images = entry.images, {number: node.name for number, node in entry.nodes.items()}

    def _node_of(self) -> Ints:
        """Number -> index of each node; the last element is -1, for none."""
        numbers = self._tables.node
        out = np.full(max(numbers, default=-1) + 2, -1, dtype=np.int32)
        out[list(numbers)] = list(numbers.values())
        return out

    def _note_taint(self, index: int, at: float, *, is_set: bool) -> None:
        """A cycle sets and removes soft taints after the entry of its snapshot, so before the one that shows it."""
        before = self.times[-1] if self.times else at
        if is_set:
            self._tainted_since.setdefault(index, before)
        elif (since := self._tainted_since.pop(index, None)) is not None:
            self._taints.append((index, since, before))

    def _step(self, at: float) -> int:
        """First step of a change; what the first entry says holds from the start on."""
        return 0 if not self.times else min(max(int((at - self.start) // STEP_SECONDS), 0), self.steps)

    # ---- pods

    def _apply_pods(self, entry: Entry, before: float, *, keyframe: bool) -> int:
        """The number of pods that came, went or were bound."""
        first = len(self._pods.rows)
        changed = self._tables.pod.rows[from_ints(entry.changed)]
        came = self._add(entry.new) if entry.new is not None else np.empty(0, dtype=np.int64)
        rows, at = np.concatenate([changed, came]), entry.at
        pods = self._pods.rows
        ended = self._tables.pod.rows[from_ints(entry.ended)]
        if keyframe:
            missing = pods["ended"] == np.inf
            missing[came] = False
            ended = np.flatnonzero(missing)
        # one that had finished before ended then
        middle = (np.maximum(pods["created"][ended], before) + at) / 2
        pods["ended"][ended] = np.minimum(pods["ended"][ended], middle)
        if not len(rows):
            return len(ended)
        now = {name: np.frombuffer(entry.columns[name], dtype=type_) for name, type_ in FIELDS.items()}
        numbers, node_of = self._tables, self._node_of()
        pods["owner"][rows] = np.array([*numbers.owner, -1], dtype=np.int32)[now["owner"]]
        pods["template"][rows] = np.array([*numbers.template, -1], dtype=np.int32)[now["template"]]
        # the earliest that something can have happened; of pods of the first entry, when they were created
        since = np.maximum(pods["created"][rows], before if len(self.times) else -np.inf)
        bound = (pods["node"][rows] < 0) & (now["node"] >= 0)
        begun = np.clip(now["started"], np.where(rows >= first, pods["created"][rows], since), at)
        guess = np.where(rows >= first, pods["created"][rows], (since + at) / 2)
        pods["bound"][rows[bound]] = np.where(np.isnan(begun), guess, begun)[bound]
        node = node_of[now["node"]]
        pods["node"][rows] = np.where(node >= 0, node, pods["node"][rows])
        since = np.maximum(since, np.where(np.isfinite(pods["bound"][rows]), pods["bound"][rows], since))
        middle = (since + at) / 2 if self.times else since
        ready = ((now["state"] & READY) > 0) & (pods["ready"][rows] == np.inf)
        pods["ready"][rows[ready]] = middle[ready]
        finished = (now["state"] & FINISHED) > 0
        over = finished & (pods["ended"][rows] == np.inf)
        pods["ended"][rows[over]] = middle[over]
        pods["ended"][rows[~finished]] = np.inf
        return len(ended) + int((bound | over).sum())

    def _add(self, new: NewPodsEntry) -> NDArray[np.int64]:
        """Indices of pods that came; those of a keyframe may be known."""
        names, uids = new.names.split("\n"), new.uids.split("\n")
        first = len(self._uids)
        index = np.fromiter(
            (self._uids.setdefault(uid, len(self._uids)) for uid in uids), dtype=np.int64, count=new.count
        )
        unknown = np.flatnonzero(index >= first)
        rows = np.empty(len(unknown), dtype=POD)
        rows["namespace"] = np.array(self._tables.namespace, dtype=np.int32)[from_ints(new.namespace)][unknown]
        rows["created"] = np.frombuffer(new.created, dtype="<f8")[unknown]
        rows["priority"] = np.frombuffer(new.priority, dtype="<i8")[unknown]
        rows["owner"] = rows["template"] = rows["node"] = -1
        rows["bound"] = rows["ready"] = rows["ended"] = np.inf
        self._pods.extend(rows)
        self._names += [names[row] for row in unknown.tolist()]
        self._tables.pod.extend(index)
        return index

    # ---- alerts

    def _apply_alerts(self, entry: Entry, *, keyframe: bool) -> None:
        over: Iterable[int] = entry.alerts_ended
        if keyframe:
            over = self._alerts.keys() - {each.id for each in entry.alerts}
        for number in over:
            alert, until = self._alerts[number]
            self._alerts[number] = alert, min(until, entry.at)
        for each in entry.alerts:
            self._alerts[each.id] = each, np.inf

    # ---- the recording

    def recording(self, *, cluster: str, today: ClusterSnapshot, usage: Mapping[str, Sequence[DayBlock]]) -> Recording:
        """What was applied. Nothing may be applied after it."""
        end, first_day = self.start + self.steps * STEP_SECONDS, slot_of(self.start)[0]
        predecessor = self._chain()
        there = np.flatnonzero(self._pods.rows["ended"] > self.start)
        nodes_there = [at for at, left in enumerate(self._node_left) if left > self.start]
        index_of, node_of = _inverse(there, len(self._names)), _inverse(nodes_there, len(self._node_entries))
        rows, uids = self._pods.rows[there], list(self._uids)
        pods = RecordedPods(
            names=[self._names[row] for row in there.tolist()],
            uids=[uids[row] for row in there.tolist()],
            node=node_of[rows["node"]],
            replaced=index_of[predecessor[there]],
            **{name: rows[name].copy() for name in _AS_THEY_ARE},
        )
        nodes = node_columns(self._lasting(nodes_there, end), self._images, today.nodes)
        absent = self._absent_steps(node_of, len(nodes_there))
        namespaces = tuple(str(name) for name in self._namespaces)
        full_names = [f"{namespaces[at]}/{name}" for at, name in zip(pods.namespace.tolist(), pods.names, strict=True)]
        recorded = {
            resource: recorded_usage(
                (each for each in blocks if each.day >= first_day),
                resource=resource,
                start=self.start,
                steps=self.steps,
                pods=full_names,
                bound=pods.bound,
                ended=pods.ended,
                nodes=nodes.names,
                absent=absent,
            )
            for resource, blocks in usage.items()
        }
        self._note_usage(full_names, usage, recorded)
        return Recording(
            source="the journal",
            cluster=cluster,
            start=self.start,
            steps=self.steps,
            nodes=nodes,
            node_joined=np.array([self._node_joined[at] for at in nodes_there], dtype=np.float64),
            node_left=np.array([self._node_left[at] for at in nodes_there], dtype=np.float64),
            node_ready=_stacked([self._node_ready[at] for at in nodes_there], self.steps),
            node_unschedulable=_stacked([self._node_cordoned[at] for at in nodes_there], self.steps),
            namespaces=namespaces,
            owners=with_failure_policies(
                [
                    Owner(kind=each.kind, namespace=each.namespace, name=each.name, uid=each.uid, parent=each.parent)
                    for each in self._owners
                ],
                today,
            ),
            pod_templates=PodTemplateTable(list(self._templates), json_decoder(PodTemplate).decode),
            pods=pods,
            usage=recorded,
            readings=self._readings.recorded(nodes=node_of, pods=index_of),
            budgets=self._budgets.recorded(self.start),
            today=today,
            before={resource: days_before(blocks, self.start, most=_DAYS_BEFORE) for resource, blocks in usage.items()},
            alerts=tuple(
                RecordedAlert(each.received_at, min(until, end), each.labels, each.annotations)
                for each, until in self._alerts.values()
                if until > self.start
            ),
            soft_taints=tuple(
                RecordedTaint(int(node_of[node]), since, until)
                for node, since, until in sorted(
                    [*self._taints, *((node, since, np.inf) for node, since in self._tainted_since.items())]
                )
                if node_of[node] >= 0 and until > self.start
            ),
            gaps=tuple(self._gaps),
        )

    def _lasting(self, nodes: Sequence[int], end: float) -> list[NodeEntry]:
        """These nodes as they were for the longest time."""
        times = [self._node_times[at] for at in nodes]
        for each in times:
            each.ended(end)
        if closed := sum(each.was_closed for each in times):
            self.note(f"taints that come and go on {counted(closed, 'node')}: they count as cordoned meanwhile")
        if changed := sum(each.has_changed for each in times):
            self.note(f"labels or taints of {counted(changed, 'node')} changed: those of the longest time are taken")
        return [each.lasting(self._node_entries[at]) for at, each in zip(nodes, times, strict=True)]

    def _absent_steps(self, node_of: Ints, count: int) -> Bools:
        """(nodes, steps) between leaving and coming back under the same name."""
        out: Bools = np.zeros((count, self.steps), dtype=np.bool_)
        for index, since, until in self._absent:
            if node_of[index] >= 0:
                out[node_of[index], self._step(since) : self._step(until)] = True
        if back := int(out.any(axis=1).sum()):
            self.note(CAME_BACK.format(counted(back, "node")))
        return out

    def _chain(self) -> NDArray[np.int64]:
        """(pods,) pod that each replaced after an eviction, -1 for none. The times of evictions are known better than
        those of snapshots."""
        pods, out = self._pods.rows, np.full(len(self._names), -1, dtype=np.int64)
        for each in self._evictions.values():
            gone, came = self._uids.get(each.uid), self._uids.get(each.replacement_uid)
            if gone is not None and each.outcome == Outcome.EVICTED:
                pods["ended"][gone] = max(pods["ended"][gone], each.at)
            if came is None or gone is None:
                continue
            out[came] = gone
            if each.replaced_at is not None and np.isfinite(pods["ready"][came]):
                pods["ready"][came] = max(each.replaced_at, pods["bound"][came])
        return out

    def _note_usage(
        self,
        names: Sequence[str],
        usage: Mapping[str, Sequence[DayBlock]],
        recorded: Mapping[str, RecordedUsage],
    ) -> None:
        days = range(slot_of(self.start)[0], slot_of(self.start + self.steps * STEP_SECONDS - 1.0)[0] + 1)
        kept = {each.day for each in usage.get(CPU, ())}
        if missing := [date_of(day) for day in days if day not in kept]:
            self.note(f"no CPU of {', '.join(missing)} is kept")
        if CPU in recorded:
            cpu = recorded[CPU]
            known = np.concatenate([[0], np.cumsum(np.isfinite(cpu.pod_values))])[cpu.pod_start]
            unknown = int(((np.diff(known) == 0) & (np.diff(cpu.pod_start) > 1)).sum())
            if unknown:
                self.note("their CPU is not known", unknown)
        used = {name for each in usage.get(CPU, ()) if each.day in days for name in each.pods}
        if strangers := len(used.difference(names)):
            self.note("they used CPU and are in no entry, so it counts as their nodes' own", strangers)


_AS_THEY_ARE = ("namespace", "owner", "template", "created", "bound", "ready", "ended", "priority")


def _inverse(chosen: Sequence[int] | NDArray[np.intp], count: int) -> Ints:
    """(count + 1,) position of each index among those chosen, -1 for the others and for -1."""
    out = np.full(count + 1, -1, dtype=np.int32)
    out[chosen] = np.arange(len(chosen), dtype=np.int32)
    return out


def _stacked(rows: Sequence[Bools], steps: int) -> Bools:
    return np.stack(rows) if rows else np.zeros((0, steps), dtype=np.bool_)
