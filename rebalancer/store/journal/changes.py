"""Changes from one snapshot to the next, as entries of the journal.

Pods are compared as columns: of 150,000 only those that came, changed or went are looked at one by one.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.eviction import Eviction, value_of
from rebalancer.model.notation.arrays import Ints
from rebalancer.model.recordings.journal import ReadUsage
from rebalancer.store.journal.entries import (
    FIELDS,
    FINISHED,
    READY,
    AlertEntry,
    BudgetEntry,
    Entry,
    EvictionEntry,
    ImagesEntry,
    NewPodsEntry,
    NodeEntry,
    OwnerEntry,
    ReadingEntry,
    ints,
)
from rebalancer.store.journal.nodes import node_entries
from rebalancer.store.journal.readings import ReadingChanges

K = TypeVar("K", bound=Hashable)
Columns = Mapping[str, NDArray[Any]]

_NONE: Ints = np.empty(0, dtype=np.int32)
_MOST_PARENTS = 8


class _Numbered(Generic[K]):
    """Keys in the order of their arrival."""

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._new: list[K] = []

    def __getitem__(self, key: K) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._new.append(key)
        return number

    def take_new(self) -> tuple[K, ...]:
        """Those that came since the last call."""
        new, self._new = tuple(self._new), []
        return new


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodsBefore:
    """The pods of the last entry."""

    uids: list[str]
    number: Ints
    """(pods,) number of each in the journal."""
    columns: Columns


class Changes:
    """What the journal has of the cluster since its last keyframe. A new one makes a keyframe first."""

    def __init__(self) -> None:
        self._namespaces: _Numbered[str] = _Numbered()
        self._nodes: _Numbered[str] = _Numbered()
        self._owners: _Numbered[OwnerEntry] = _Numbered()
        self._templates: _Numbered[bytes] = _Numbered()
        self._pods_begun = 0
        self._pods = _PodsBefore(
            uids=[], number=_NONE, columns={name: np.empty(0, dtype=type_) for name, type_ in FIELDS.items()}
        )
        self._nodes_of: Nodes | None = None
        self._node_entries: dict[int, NodeEntry] = {}
        self._owners_of: tuple[tuple[Owner, ...], Ints, Ints] = ((), _NONE, _lookup([]))
        """Owners of the last snapshot, which of them pods used, and the number of each, -1 where it wasn't used."""
        self._budgets: dict[tuple[str, str], BudgetEntry] = {}
        self._evictions: set[EvictionEntry] = set()
        self._alerts: set[int] = set()
        self._readings = ReadingChanges()

    def entry(
        self,
        snapshot: ClusterSnapshot,
        *,
        previous: int | None,
        evictions: Iterable[Eviction] = (),
        alerts: Iterable[AlertEpisode] = (),
        read: ReadUsage | None = None,
    ) -> Entry:
        """The changes since the last call: the journal must get them, or be begun again with a keyframe."""
        nodes, nodes_left = self._changed_nodes(snapshot.nodes)
        columns, templates = self._columns_of(snapshot)
        new, changed, ended, values = self._changed_pods(snapshot, columns)
        budgets, budgets_ended = self._changed_budgets(snapshot.budgets)
        alerts_begun, alerts_ended = self._changed_alerts(alerts)
        return Entry(
            at=snapshot.taken,
            previous=previous,
            namespaces=self._namespaces.take_new(),
            owners=self._owners.take_new(),
            templates=templates,
            nodes=nodes,
            nodes_left=nodes_left,
            images=self._images(snapshot.nodes) if previous is None else None,
            new=new,
            changed=changed,
            columns=values,
            ended=ended,
            budgets=budgets,
            budgets_ended=budgets_ended,
            evictions=self._new_evictions(evictions),
            alerts=alerts_begun,
            alerts_ended=alerts_ended,
            reading=None if read is None else self._reading(read),
        )

    def _reading(self, read: ReadUsage) -> ReadingEntry:
        """Of the nodes and pods that are still there."""
        snapshot = read.snapshot
        there = {each.name: number for number, each in self._node_entries.items()}
        nodes = np.array([there.get(name, -1) for name in snapshot.nodes.names], dtype=np.int32)
        pods = np.append(self._pods.number, np.int32(-1))[_rows_before(self._pods.uids, snapshot.pods.uids)]
        return self._readings.entry(read, nodes=nodes, pods=pods)

    # ---- nodes

    def _changed_nodes(self, nodes: Nodes) -> tuple[dict[int, NodeEntry], tuple[int, ...]]:
        if nodes is self._nodes_of:
            return {}, ()
        before, now = self._node_entries, {self._nodes[each.name]: each for each in node_entries(nodes)}
        self._nodes.take_new()  # their names are in their entries
        self._nodes_of, self._node_entries = nodes, now
        changed = {number: each for number, each in now.items() if before.get(number) != each}
        return changed, tuple(sorted(before.keys() - now.keys()))

    def _images(self, nodes: Nodes) -> ImagesEntry:
        names, sizes, image, node = nodes.images.columns()
        number = np.array([self._nodes[name] for name in nodes.names], dtype=np.int32)
        by_number = sorted(names, key=names.__getitem__)
        return ImagesEntry(by_number, sizes.tolist(), ints(image), ints(number[node]))

    # ---- pods

    def _columns_of(self, snapshot: ClusterSnapshot) -> tuple[Columns, tuple[bytes, ...]]:
        """Columns of FIELDS for all pods, and the templates that are new."""
        pods = snapshot.pods
        finished = (pods.phase == SUCCEEDED) | (pods.phase == FAILED)
        node_of = _lookup([self._nodes[name] for name in snapshot.nodes.names])
        template_of, templates = self._template_numbers(snapshot)
        columns = {
            "node": node_of[pods.node],
            "owner": self._owner_numbers(snapshot)[pods.owner],
            "template": template_of[pods.template],
            "state": (READY * pods.ready + FINISHED * finished).astype(np.uint8),
            "started": pods.started,
        }
        return columns, templates

    def _template_numbers(self, snapshot: ClusterSnapshot) -> tuple[Ints, tuple[bytes, ...]]:
        """(templates + 1,) number of each that a pod has, else -1; and those that are new, encoded."""
        table, numbers = snapshot.pod_templates, np.full(len(snapshot.pod_templates) + 1, -1, dtype=np.int32)
        used = np.flatnonzero(np.bincount(snapshot.pods.template, minlength=len(table))).tolist()
        index_of = {}
        for index in used:
            blob = table.blob(index)
            numbers[index] = self._templates[blob]
            index_of[blob] = index
        new = (table.decoded(index_of[blob]) for blob in self._templates.take_new())
        return numbers, tuple(msgspec.json.encode(template) for template in new)

    def _owner_numbers(self, snapshot: ClusterSnapshot) -> Ints:
        """(owners + 1,) number of each that a pod has, else -1."""
        owners = snapshot.owners
        used = np.flatnonzero(np.bincount(snapshot.pods.owner + 1, minlength=len(owners) + 1)[1:]).astype(np.int32)
        before, used_before, known = self._owners_of
        if owners is not before or not np.array_equal(used, used_before):
            known = np.full(len(owners) + 1, -1, dtype=np.int32)
            known[used] = [self._owner_number(owners, index) for index in used.tolist()]
            self._owners_of = owners, used, known
        return known

    def _owner_number(self, owners: Sequence[Owner], index: int, depth: int = 0) -> int:
        if index < 0 or depth > _MOST_PARENTS:
            return -1
        owner = owners[index]
        parent = self._owner_number(owners, owner.parent, depth + 1)
        return self._owners[OwnerEntry(owner.kind, owner.namespace, owner.name, owner.uid, parent)]

    def _changed_pods(
        self, snapshot: ClusterSnapshot, columns: Columns
    ) -> tuple[NewPodsEntry | None, bytes, bytes, dict[str, bytes]]:
        pods, before = snapshot.pods, self._pods
        row_before = _rows_before(before.uids, pods.uids)
        kept, came = np.flatnonzero(row_before >= 0), np.flatnonzero(row_before < 0)
        old = row_before[kept]
        differs = np.zeros(len(kept), dtype=np.bool_)
        for name, now in columns.items():
            was, now_kept = before.columns[name][old], now[kept]
            same = was == now_kept
            if name == "started":
                same |= np.isnan(was) & np.isnan(now_kept)
            differs |= ~same
        changed = kept[differs]
        gone = np.ones(len(before.uids), dtype=np.bool_)
        gone[old] = False
        number = np.empty(len(pods), dtype=np.int32)
        number[kept] = before.number[old]
        number[came] = self._pods_begun + np.arange(len(came), dtype=np.int32)
        self._pods_begun += len(came)
        self._pods = _PodsBefore(uids=pods.uids, number=number, columns=columns)
        rows = np.concatenate([changed, came])
        values = {name: columns[name][rows].astype(type_).tobytes() for name, type_ in FIELDS.items()}
        new = self._new_pods(snapshot, came) if len(came) else None
        return new, ints(number[changed]), ints(before.number[gone]), values if len(rows) else {}

    def _new_pods(self, snapshot: ClusterSnapshot, rows: NDArray[np.intp]) -> NewPodsEntry:
        pods = snapshot.pods
        namespace_of = np.array([self._namespaces[name] for name in snapshot.namespaces], dtype=np.int32)
        return NewPodsEntry(
            len(rows),
            "\n".join(pods.names[row] for row in rows.tolist()),
            "\n".join(pods.uids[row] for row in rows.tolist()),
            ints(namespace_of[pods.namespace[rows]]),
            pods.created[rows].astype("<f8").tobytes(),
            pods.priority[rows].astype("<i8").tobytes(),
        )

    # ---- the rest

    def _changed_budgets(
        self, budgets: Iterable[DisruptionBudget]
    ) -> tuple[tuple[BudgetEntry, ...], tuple[tuple[str, str], ...]]:
        before = self._budgets
        now = self._budgets = {
            (each.namespace, each.name): BudgetEntry(
                each.namespace, each.name, each.selector, each.desired_healthy, each.evicts_unhealthy
            )
            for each in budgets
        }
        changed = tuple(each for key, each in now.items() if before.get(key) != each)
        return changed, tuple(sorted(before.keys() - now.keys()))

    def _new_evictions(self, evictions: Iterable[Eviction]) -> tuple[EvictionEntry, ...]:
        found = dict.fromkeys(map(_eviction_entry, evictions))
        new = tuple(each for each in found if each not in self._evictions)
        self._evictions.update(new)
        return new

    def _changed_alerts(self, alerts: Iterable[AlertEpisode]) -> tuple[tuple[AlertEntry, ...], tuple[int, ...]]:
        before, now = self._alerts, {each.id: each for each in alerts}
        self._alerts = set(now)
        begun = tuple(
            AlertEntry(each.id, each.received_at, dict(each.alert.labels), dict(each.alert.annotations))
            for each in now.values()
            if each.id not in before
        )
        return begun, tuple(sorted(before - now.keys()))


def _rows_before(before: list[str], now: list[str]) -> NDArray[np.int64]:
    """(now,) row of each uid before, -1 for none. A watch gives the same list while no pod comes or goes."""
    if before is now:
        return np.arange(len(now), dtype=np.int64)
    row_of = {uid: row for row, uid in enumerate(before)}
    return np.fromiter((row_of.get(uid, -1) for uid in now), dtype=np.int64, count=len(now))


def _eviction_entry(eviction: Eviction) -> EvictionEntry:
    return EvictionEntry(*(value_of(eviction, name) for name in EvictionEntry.__struct_fields__))


def _lookup(numbers: list[int]) -> Ints:
    # -1 (none) picks the appended last element, which is -1 again
    return np.array([*numbers, -1], dtype=np.int32)
