"""The days of one resource that forecasts are made from: read from Prometheus once, kept on disk, and carried on.

Today goes first and only its new steps are queried; then the days that are missing, newest first, as far as the hour's
queries reach. Without Prometheus each cycle's own usage is collected, so that days build up as they pass.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import overload
from weakref import WeakValueDictionary

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.day_grid import DayGrid
from rebalancer.model.measured.history import (
    SLOTS,
    DayBlock,
    DayPull,
    DayStore,
    Grid,
    History,
    HistorySource,
    StoredDay,
    block_units,
    date_of,
    slot_of,
)
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU

DAYS = 8
"""Closed days that are kept, besides today."""
_MARGIN_DAYS = 1
_LAG_SECONDS = 60.0
"""A step is queried so long after its end, when its recording rules have run."""
_CLOCK_SLACK_SECONDS = 120.0
_AGAIN_SECONDS = 3600.0
"""A day with partial answers is queried again after an hour, one without any sample after six."""
_ABSENT_AGAIN_SECONDS = 6 * 3600.0
_MOST_COLLECTED = 12
_MOSTLY = 0.9
_QUERIES = {CPU: "usage.prometheus.nodeCPU and podCPU"}
"""Policy fields of a resource's queries; of all others `usage.prometheus.resources`."""
_NO_ROWS: Grid = np.empty((0, SLOTS), dtype=np.float32)


@dataclass(slots=True, kw_only=True)
class HistoryKeeper:
    """Keeps one cluster's history. Not for several threads at once."""

    resource: str = CPU
    """What the history is of."""
    source: HistorySource | None
    """None: history is collected from what `observe` receives."""
    blocks: DayStore
    clock: Clock
    days: int = DAYS
    stopping: Callable[[], bool] = lambda: False
    _pulls: dict[int, "_Pulling"] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)
    _partial: dict[int, tuple[float, Sequence[str]]] = field(default_factory=dict)
    _collected: dict[tuple[int, int], "_Slot"] = field(default_factory=dict)
    _loaded: WeakValueDictionary[int, DayBlock] = field(default_factory=WeakValueDictionary)

    def update(self, snapshot: ClusterSnapshot) -> History:
        """Read what is missing, as far as that goes now, and give what there is.

        Never raises: what goes wrong stands in the notes, and history is as old as it was.
        """
        notes: list[str] = []
        today, slot = slot_of(self.clock.now() - _LAG_SECONDS)
        try:
            self.blocks.drop(before=today - self.days - _MARGIN_DAYS)
            if self.source is None:
                self._flush(today)
            else:
                self._fill(self.source, snapshot, today, slot, notes)
        except RebalancerError as error:
            notes.append(str(error))
        return self._history(today, notes)

    def kept(self) -> History:
        """What there is, without asking for anything."""
        return self._history(slot_of(self.clock.now() - _LAG_SECONDS)[0], [])

    def nodes_of(self, day: int) -> tuple[Sequence[str], Grid] | None:
        """Names and (nodes, 288) millicores of one day's nodes, as far as they are kept. For any thread."""
        return self.blocks.nodes(day)

    def observe(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """Collect one cycle's usage; nothing is done where Prometheus remembers it."""
        if self.source is not None:
            return
        amounts = _amounts(usage, self.resource)
        if amounts is None:
            return
        of_nodes, of_pods = amounts
        slot = self._collected.setdefault(slot_of(usage.at), _Slot())
        namespaces, active = snapshot.namespaces, snapshot.active.tolist()
        pods = zip(snapshot.pods.names, snapshot.pods.namespace.tolist(), of_pods.tolist(), strict=True)
        slot.pods.add(
            (f"{namespaces[at]}/{name}", used) for (name, at, used), on in zip(pods, active, strict=True) if on
        )
        slot.nodes.add(zip(snapshot.nodes.names, of_nodes.tolist(), strict=True))
        if len(self._collected) > _MOST_COLLECTED:
            try:
                self._flush(slot_of(self.clock.now() - _LAG_SECONDS)[0])
            except RebalancerError:
                del self._collected[min(self._collected)]  # memory is bounded; the next update reports what is wrong

    def _fill(self, source: HistorySource, snapshot: ClusterSnapshot, today: int, slot: int, notes: list[str]) -> None:
        wanted = list(self._wanted(today, slot))
        self._pulls = {day: pulling for day, pulling in self._pulls.items() if today - self.days <= day <= today}
        if not wanted:
            return
        ahead = source.seconds_ahead()
        if ahead is not None and abs(ahead) > _CLOCK_SLACK_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            notes.append(
                f"Prometheus' clock is {abs(ahead):.0f} s {way} ours: nothing is added to history until they agree"
            )
            return
        for day, first, end in wanted:
            pulling = self._pulls.get(day)
            if pulling is None:
                pull = source.pull(day, first=first, end=end, snapshot=snapshot)
                pulling = self._pulls[day] = _Pulling(pull=pull, first=first, end=end)
            if self.stopping() or not pulling.pull.advance():
                notes.append(f"{date_of(day)} is only read in part yet: it goes on as the hour's queries allow")
                return
            del self._pulls[day]
            self._keep(day, pulling, today)

    def _wanted(self, today: int, slot: int) -> Iterator[tuple[int, int, int]]:
        """(day, first slot, end), today first, then the newest."""
        kept, now = self.blocks.days(), self.clock.now()
        for day in range(today, today - self.days - 1, -1):
            known = kept.get(day)
            if known is not None and known.complete:
                continue
            end = slot if day == today else SLOTS
            first = known.filled if known is not None else 0
            partial_at = self._partial.get(day, (-math.inf, ()))[0]
            due = now >= max(partial_at + _AGAIN_SECONDS, self._absent.get(day, -math.inf) + _ABSENT_AGAIN_SECONDS)
            if first < end and (due or day == today):
                yield day, first, end

    def _keep(self, day: int, pulling: "_Pulling", today: int) -> None:
        pull, first, end = pulling.pull, pulling.first, pulling.end
        old = self.blocks.load(day)
        if old is None and first > 0:
            return  # its first part has just been lost: the next update reads the whole day
        block = pull.onto(old) or old
        if pull.warnings:
            # what is there is better than nothing, but these steps are queried again
            self._partial[day] = (self.clock.now(), pull.warnings)
            end = first
        else:
            self._partial.pop(day, None)
        if block is None:
            if day < today:
                self._absent[day] = self.clock.now()
            return
        self._absent.pop(day, None)
        self._save(replace(block, filled=end, complete=end == SLOTS))

    def _save(self, block: DayBlock) -> None:
        self._loaded.pop(block.day, None)
        self.blocks.save(block)

    def _flush(self, today: int) -> None:
        """Write what was collected in steps that are over, and close the days that are."""
        now = slot_of(self.clock.now() - _LAG_SECONDS)
        over = sorted(each for each in self._collected if each < now)
        for day in dict.fromkeys(day for day, _ in over):
            slots = {slot: self._collected[day, slot] for each, slot in over if each == day}
            self._save(_joined(day, self.blocks.load(day), slots))
            for slot in slots:
                del self._collected[day, slot]
        for day, known in self.blocks.days().items():
            if day < today and not known.complete and (block := self.blocks.load(day)) is not None:
                self._save(_closed(block))

    def _history(self, today: int, notes: list[str]) -> History:
        try:
            kept = {day: each for day, each in self.blocks.days().items() if today - self.days <= day <= today}
        except RebalancerError as error:
            return History(days=(), notes=tuple(dict.fromkeys((*notes, str(error)))))
        notes += self.blocks.take_notes()
        notes += self._missing(kept, today)
        for day in sorted(kept):
            date = date_of(day)
            # most name times of the day, which are complete
            notes += [note if date in note else f"{date}: {note}" for note in kept[day].notes]
        for day, (_, warnings) in sorted(self._partial.items()):
            if day >= today - self.days:
                notes.append(f"{date_of(day)}: the answers were partial: {'; '.join(warnings)}")
        return History(days=_Days(sorted(kept), self.blocks, self._loaded), notes=tuple(dict.fromkeys(notes)))

    def _missing(self, kept: dict[int, StoredDay], today: int) -> Iterator[str]:
        missing = [day for day in range(today - self.days, today) if day not in kept]
        if not missing:
            return
        if self.source is None:
            yield f"without Prometheus days are collected as they pass: {self.days - len(missing)} of {self.days}"
            return
        absent = [day for day in missing if day in self._absent]
        before = min(kept, default=today)
        if old := [day for day in absent if day < before]:
            # without anything newer, the queries find nothing at any time
            fields = _QUERIES.get(self.resource, "usage.prometheus.resources")
            why = "is its retention shorter?" if kept else f"its queries find no series, check {fields}"
            yield (
                f"Prometheus has nothing of {len(old)} of {self.days} days, the last of them {date_of(old[-1])}: {why}"
            )
        yield from (f"{date_of(day)}: Prometheus has no samples" for day in absent if day > before)
        if waiting := [day for day in missing if day not in self._absent]:
            yield f"{len(waiting)} of {self.days} days are still to be read, the newest {date_of(waiting[-1])}"


def _amounts(usage: Usage, resource: str) -> tuple[Floats, Floats] | None:
    """(nodes,) and (pods,) amounts in units of day blocks; None where the source doesn't have the resource."""
    if resource == CPU:
        return usage.node_cpu_millicores, usage.pod_cpu_millicores
    found = usage.resources.get(resource)
    return None if found is None else (found.node * block_units(resource), found.pod * block_units(resource))


@dataclass(frozen=True, kw_only=True)
class _Pulling:
    """A pull and what it is of."""

    pull: DayPull
    first: int
    end: int


class _Means:
    """Sums and counts by name."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, figures: Iterable[tuple[str, float]]) -> None:
        for name, value in figures:
            if not math.isnan(value):
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value, count + 1)

    def means(self) -> Iterator[tuple[str, float]]:
        return ((name, total / count) for name, (total, count) in self._sums.items())


@dataclass(kw_only=True)
class _Slot:
    """What was observed within one step."""

    pods: _Means = field(default_factory=_Means)
    nodes: _Means = field(default_factory=_Means)


class _Days(Sequence[DayBlock]):
    """Days on disk: each is loaded on access and released after its last use."""

    def __init__(self, days: Sequence[int], blocks: DayStore, loaded: WeakValueDictionary[int, DayBlock]) -> None:
        self._days, self._blocks, self._loaded = days, blocks, loaded

    def __len__(self) -> int:
        return len(self._days)

    @overload
    def __getitem__(self, index: int) -> DayBlock: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DayBlock]: ...

    def __getitem__(self, index: int | slice) -> DayBlock | Sequence[DayBlock]:
        if isinstance(index, slice):
            return _Days(self._days[index], self._blocks, self._loaded)
        day = self._days[index]
        found = self._loaded.get(day)
        if found is None:
            # broken since it was last looked at: the next update reports it and reads it again
            found = self._blocks.load(day) or _empty(day)
            self._loaded[day] = found
        return found


def _empty(day: int) -> DayBlock:
    return DayBlock(
        day=day, pods=(), pod_millicores=_NO_ROWS, nodes=(), node_millicores=_NO_ROWS, complete=False, filled=0
    )


def _joined(day: int, old: DayBlock | None, slots: dict[int, _Slot]) -> DayBlock:
    """A day with what was collected in some of its steps."""
    old = old or _empty(day)
    first, end = min(slots), max(slots) + 1
    pods, nodes = DayGrid(first=first, end=end), DayGrid(first=first, end=end)
    for number, slot in slots.items():
        for grid, means in ((pods, slot.pods), (nodes, slot.nodes)):
            for name, value in means.means():
                grid.part(name, number, 1)[0] = value
    pod_names, pod_values = pods.onto(old.pods, old.pod_millicores)
    node_names, node_values = nodes.onto(old.nodes, old.node_millicores)
    return replace(
        old,
        pods=pod_names,
        pod_millicores=pod_values,
        nodes=node_names,
        node_millicores=node_values,
        filled=max(end, old.filled),
    )


def _closed(block: DayBlock) -> DayBlock:
    seen = int(np.isfinite(block.node_millicores).any(axis=0).sum())
    note = () if seen >= _MOSTLY * SLOTS else (f"observed in {seen} of {SLOTS} steps only",)
    return replace(block, complete=True, filled=SLOTS, notes=(*block.notes, *note))
