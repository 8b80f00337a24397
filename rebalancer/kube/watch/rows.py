"""Pods as rows: a watch changes them one at a time, and a snapshot copies them in milliseconds.

A pod is a row of numbers in one growing array; its name and uid stand in the order of the pods. Its template, owner,
node and namespace are numbers of tables, in which each is stored once; when a table has doubled, entries without pods
are dropped.
"""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.kube.snapshot.columns import bare, controller_of, ends, is_ready, pod_columns, unready_since
from rebalancer.kube.snapshot.pod_templates import PodTemplateColumns, PodTemplates
from rebalancer.kube.snapshot.records import OwnerReference, Pod
from rebalancer.kube.snapshot.statuses import NOTHING, is_quiet, restarts_of, scheduling_of, status_of
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.kube.watch.pod_order import Key, PodOrder
from rebalancer.kube.watch.watch import Change
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import PHASES, UNKNOWN, Pods, PodStatus
from rebalancer.model.cluster.releases import OLDEST_MINOR

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_KEPT = Pods.columns.keys() - {"names", "uids"} - {each.name for each in fields(PodTemplateColumns)}
"""The columns that are not those of the template."""
ROW = np.dtype([(name, each.type) for name, each in Pods.columns.items() if name in _KEPT] + [("alive", np.bool_)])
_in_order = itemgetter(*(ROW.names or ()))
NO_POD = np.array((*(each.empty for name, each in Pods.columns.items() if name in _KEPT), False), dtype=ROW)
FIRST_ROWS = 1024
FIRST_TIDYING = 4096
PHASE_NUMBERS: Mapping[str, int] = {name: index for index, name in enumerate(PHASES)}


class Interned(Generic[K, V]):
    """Values by key, numbered in the order of their arrival."""

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self.values: list[V] = []

    def __len__(self) -> int:
        return len(self.values)

    def number(self, key: K, value: V) -> int:
        """The key's number; `value` is kept only for a new key."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found

    def keep(self, used: NDArray[np.bool_]) -> None:
        """Drop the values that are not `used` (values,); the others keep their order."""
        kept, keys = np.flatnonzero(used).tolist(), list(self._numbers)
        self._numbers = {keys[old]: new for new, old in enumerate(kept)}
        self.values = [self.values[old] for old in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsTaken:
    """All pods at one moment. Immutable."""

    rows: NDArray[Any]
    """(pods,) of type ROW, by (namespace, name)."""
    names: list[str]
    """The same list as before while no pod came or went, as `uids`."""
    uids: list[str]
    namespaces: list[str]
    nodes: list[str]
    owners: list[tuple[str, OwnerReference]]
    """(namespace, reference) of the controlling owners; also of some without pods."""
    statuses: list[PodStatus]
    pod_templates: PodTemplateTable
    figures: PodTemplateColumns
    causes: list[str]
    """(templates,) why the pods of each can't be read; empty for those that can."""
    uses_claims: bool
    """Whether any pod has a PersistentVolumeClaim or a generic ephemeral volume."""

    def inhabited(self) -> list[str]:
        """The namespaces that have pods."""
        used = _used(self.rows["namespace"], len(self.namespaces))
        return [self.namespaces[number] for number in np.flatnonzero(used).tolist()]

    def owned(self) -> list[int]:
        """The numbers of the owners that have pods, in the order of the table."""
        return np.flatnonzero(_used(self.rows["owner"], len(self.owners))).tolist()

    def columns(self, *, nodes: Mapping[str, int], namespaces: Mapping[str, int], owners: Mapping[int, int]) -> Pods:
        """The snapshot's columns. `namespaces` numbers all namespaces with pods; `owners` maps our numbers."""
        rows = self.rows
        node_of = _lookup([nodes.get(name, -1) for name in self.nodes])
        owner_of = _lookup([owners.get(number, -1) for number in range(len(self.owners))])
        namespace_of = _lookup([namespaces.get(name, -1) for name in self.namespaces])
        numbered = {
            "namespace": namespace_of[rows["namespace"]],
            "node": node_of[rows["node"]],
            "nominated": node_of[rows["nominated"]],
            "owner": owner_of[rows["owner"]],
        }
        # bound to a node that isn't listed
        numbered["gated"] = rows["gated"] | ((rows["node"] >= 0) & (numbered["node"] < 0))
        # copied: with a view of one column the rows of all would stay in memory
        columns = numbered | {name: rows[name].copy() for name in _KEPT - numbered.keys()}
        return pod_columns(columns, names=self.names, uids=self.uids, figures=self.figures)


class PodRows:
    """All pods of a cluster. A `kube.watch.Store`; safe to read while it changes."""

    def __init__(self, minor: int = OLDEST_MINOR) -> None:
        """`minor`: as of the snapshot."""
        self.minor = minor
        self._lock = threading.Lock()
        self._rows = np.zeros(FIRST_ROWS, dtype=ROW)
        self._row_of: dict[str, int] = {}
        """By uid."""
        self._names: list[str] = []
        self._uids: list[str] = []
        """Of the rows that have been used."""
        self._order = PodOrder(self._key_of)
        self._taken: tuple[NDArray[np.int64], list[str], list[str]] | None = None
        """Rows, names and uids in order; until a pod comes or goes."""
        self._free: list[int] = []
        self._begun = 0
        """Rows from here on have never been used."""
        self._namespaces: Interned[str, str] = Interned()
        self._nodes: Interned[str, str] = Interned()
        self._owners: Interned[tuple[str, str], tuple[str, OwnerReference]] = Interned()
        self._statuses: Interned[PodStatus, PodStatus] = Interned()
        self._statuses.number(NOTHING, NOTHING)
        self._templates = PodTemplates(minor)
        self._tidy_at = FIRST_TIDYING

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, pods: Sequence[Pod], /) -> None:
        """Add one page of a list."""
        with self._lock:
            for pod in pods:
                self._put(pod, self._order.append)
            self._tidy_when_due()

    def apply(self, changes: Sequence[Change[Pod]], /) -> None:
        """Apply events."""
        with self._lock:
            for gone, pod in changes:
                if gone:
                    self._take(pod.metadata.uid)
                else:
                    self._put(pod, self._order.add)
            self._tidy_when_due()

    def taken(self) -> PodsTaken:
        """A copy of everything."""
        with self._lock:
            if self._taken is None:
                order = self._order.taken()
                rows = order.tolist()
                self._taken = order, [self._names[row] for row in rows], [self._uids[row] for row in rows]
            order, names, uids = self._taken
            return PodsTaken(
                rows=self._rows[order],
                names=names,
                uids=uids,
                namespaces=list(self._namespaces.values),
                nodes=list(self._nodes.values),
                owners=list(self._owners.values),
                statuses=list(self._statuses.values),
                pod_templates=self._templates.table(),
                figures=self._templates.columns(),
                causes=self._templates.causes,
                uses_claims=self._uses_claims(),
            )

    def uses_claims(self) -> bool:
        """Whether any pod has a PersistentVolumeClaim or a generic ephemeral volume."""
        with self._lock:
            return self._uses_claims()

    def owners(self) -> list[tuple[str, OwnerReference]]:
        """(namespace, reference) of every controlling owner that has pods."""
        with self._lock:
            used = self._in_use(("owner",), len(self._owners))
            return [self._owners.values[number] for number in np.flatnonzero(used).tolist()]

    # ---- one pod; all of it under the lock

    def _put(self, pod: Pod, place: Callable[[int], None]) -> None:
        try:
            values = self._row_values(pod)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this pod's
            values = self._row_values(bare(pod, error))
        meta = pod.metadata
        known = self._row_of.get(meta.uid)
        row = self._new_row() if known is None else known
        self._rows[row] = _in_order(values)
        if known is None:
            self._row_of[meta.uid] = row
            self._names[row], self._uids[row] = meta.name, meta.uid
            self._taken = None
            place(row)

    def _row_values(self, pod: Pod) -> dict[str, Any]:
        meta, spec, status = pod.metadata, pod.spec, pod.status
        reference = controller_of(meta.owner_references)
        of_daemonset = reference is not None and reference.kind == "DaemonSet"
        template = self._templates.index_of(pod, of_daemonset=of_daemonset)
        waits = not spec.node_name
        gated, unschedulable = scheduling_of(pod) if waits else (False, False)
        restarts = init_restarts = number = 0
        if not is_quiet(status):
            restarts, init_restarts = (
                restarts_of(status.container_statuses),
                restarts_of(status.init_container_statuses),
            )
            key = status_of(status)
            number = self._statuses.number(key, key)
        return {
            "namespace": self._namespaces.number(meta.namespace, meta.namespace),
            "node": -1 if waits else self._nodes.number(spec.node_name, spec.node_name),
            "nominated": self._nodes.number(status.nominated_node_name, status.nominated_node_name)
            if waits and status.nominated_node_name
            else -1,
            "owner": -1
            if reference is None
            else self._owners.number((meta.namespace, reference.uid), (meta.namespace, reference)),
            "template": template,
            "phase": PHASE_NUMBERS.get(status.phase, UNKNOWN),
            "ready": is_ready(status.conditions),
            "unready_since": unready_since(status.conditions),
            "ends": ends(pod),
            "terminating": meta.deletion_timestamp is not None,
            "gated": gated,
            "unschedulable": unschedulable,
            "restarts": restarts,
            "init_restarts": init_restarts,
            "status": number,
            "created": epoch_seconds(meta.creation_timestamp),
            "started": epoch_seconds(status.start_time),
            "alive": True,
        }

    def _take(self, uid: str) -> None:
        row = self._row_of.pop(uid, None)
        if row is not None:
            self._taken = None
            self._order.remove(row)
            self._rows[row] = NO_POD
            self._names[row] = self._uids[row] = ""
            self._free.append(row)

    def _key_of(self, row: int) -> Key:
        return self._namespaces.values[self._rows["namespace"][row]], self._names[row], self._uids[row]

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = self._begun
        if row == len(self._rows):
            more = max(len(self._rows) // 4, FIRST_ROWS)
            self._rows = np.concatenate([self._rows, np.zeros(more, dtype=ROW)])
        self._begun += 1
        self._names.append("")
        self._uids.append("")
        return row

    # ---- the tables

    def _uses_claims(self) -> bool:
        used = self._in_use(("template",), len(self._templates))
        return bool((used & np.array(self._templates.with_claims, dtype=np.bool_)).any())

    def _in_use(self, columns: tuple[str, ...], size: int) -> NDArray[np.bool_]:
        """(size,) the numbers that a live row has in one of the columns."""
        rows = self._rows[: self._begun]
        live = rows[rows["alive"]]
        used = np.zeros(size, dtype=np.bool_)
        for column in columns:
            used |= _used(live[column], size)
        return used

    def _tidy_when_due(self) -> None:
        if self._table_sizes() < self._tidy_at:
            return
        tables: tuple[tuple[PodTemplates | Interned[Any, Any], tuple[str, ...]], ...] = (
            (self._templates, ("template",)),
            (self._owners, ("owner",)),
            (self._nodes, ("node", "nominated")),
            (self._namespaces, ("namespace",)),
            (self._statuses, ("status",)),
        )
        rows = self._rows[: self._begun]
        for table, columns in tables:
            used = self._in_use(columns, len(table))
            if table is self._statuses:
                used[0] = True  # the empty status is the first, whether or not a pod has it
            table.keep(used)
            moved = _lookup(np.where(used, np.cumsum(used) - 1, -1).tolist())
            for column in columns:
                rows[column] = moved[rows[column]]
        self._tidy_at = max(FIRST_TIDYING, 2 * self._table_sizes())

    def _table_sizes(self) -> int:
        tables = (self._templates, self._owners, self._nodes, self._namespaces, self._statuses)
        return sum(len(table) for table in tables)


def _used(numbers: NDArray[np.int32], size: int) -> NDArray[np.bool_]:
    return np.bincount(numbers[numbers >= 0], minlength=size)[:size].astype(np.bool_)


def _lookup(numbers: list[int]) -> NDArray[np.int32]:
    # -1 (none) picks the appended last element, which is -1 again.
    return np.array([*numbers, -1], dtype=np.int32)
