"""The lab's etcd: plain dictionaries, one lock, one version counter, a bounded history for watches.

A stored object is never changed in place: a change stores a new one. So a list, a page that is served later, and a
watch event can share it without copying.
"""

import random
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

from rebalancer.lab.clock import LabClock, timestamp
from rebalancer.lab.objects import kinds
from rebalancer.lab.objects.errors import already_exists, conflict, expired, not_found
from rebalancer.lab.objects.kinds import Obj

Key = tuple[str, str]

_FIRST_VERSION = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write. `before` is what it replaced, None for a new object."""

    version: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    plural: str
    object: Obj
    before: Obj | None


class Store:
    """Objects of every kind, by (namespace, name). Hold `lock` around anything that reads before it writes."""

    def __init__(self, *, clock: LabClock, seed: int = 1, history: int = 20000) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.version = _FIRST_VERSION
        self._random = random.Random(seed)
        self._objects: dict[str, dict[Key, Obj]] = {kind.plural: {} for kind in kinds.KINDS}
        self._history: dict[str, deque[Change]] = {kind.plural: deque() for kind in kinds.KINDS}
        self._history_limit = history
        self._floor: dict[str, int] = {kind.plural: _FIRST_VERSION for kind in kinds.KINDS}
        self._listeners: list[Callable[[Change], None]] = []

    # -- reading ------------------------------------------------------------------------------------------------

    def find(self, plural: str, namespace: str, name: str) -> Obj | None:
        """The object, or None."""
        with self.lock:
            return self._objects[plural].get((namespace, name))

    def get(self, plural: str, namespace: str, name: str) -> Obj:
        """The object. Raises ApiError 404."""
        found = self.find(plural, namespace, name)
        if found is None:
            raise not_found(kinds.by_plural(plural), name)
        return found

    def all(self, plural: str) -> list[Obj]:
        """Every object of a kind, unsorted."""
        with self.lock:
            return list(self._objects[plural].values())

    def keys(self, plural: str) -> list[Key]:
        """(namespace, name) of every object of a kind."""
        with self.lock:
            return list(self._objects[plural])

    def sorted(self, plural: str) -> list[Obj]:
        """Every object of a kind, by (namespace, name), as etcd lists them."""
        with self.lock:
            table = self._objects[plural]
            return [table[key] for key in sorted(table)]

    def changes_since(self, plural: str, version: int) -> list[Change]:
        """Writes after `version`, oldest first. Raises ApiError 410 when the history no longer reaches back so far."""
        with self.lock:
            if version < self._floor[plural]:
                raise expired(f"too old resource version: {version} ({self._floor[plural]})")
            found: list[Change] = []
            for change in reversed(self._history[plural]):
                if change.version <= version:
                    break
                found.append(change)
            return found[::-1]

    def compact(self) -> None:
        """Drop the history, as etcd's compaction: older watches end with 410."""
        with self.lock:
            for plural, changes in self._history.items():
                changes.clear()
                self._floor[plural] = self.version

    # -- writing ------------------------------------------------------------------------------------------------

    def create(self, plural: str, obj: Obj) -> Obj:
        """Store a new object and return it with its uid, version and times. Raises ApiError 409."""
        kind = kinds.by_plural(plural)
        with self.lock:
            new = deepcopy(obj)
            meta = new.setdefault("metadata", {})
            if not meta.get("name") and meta.get("generateName"):
                meta["name"] = meta["generateName"] + self.suffix()
            namespace = meta.get("namespace", "") if kind.namespaced else ""
            if (namespace, meta["name"]) in self._objects[plural]:
                raise already_exists(kind, meta["name"])
            new["kind"], new["apiVersion"] = kind.kind, kind.api_version
            meta["uid"] = self.new_uid()
            meta["creationTimestamp"] = meta.get("creationTimestamp") or timestamp(self.clock.now())
            if "spec" in new:
                meta["generation"] = 1
            return self._write("ADDED", plural, (namespace, meta["name"]), new, None)

    def update(self, plural: str, obj: Obj) -> Obj:
        """Replace an object. A `resourceVersion` in it must be the stored one. Raises ApiError 404, 409."""
        kind = kinds.by_plural(plural)
        meta = obj["metadata"]
        key = (meta.get("namespace", "") if kind.namespaced else "", meta["name"])
        with self.lock:
            before = self.get(plural, *key)
            have = before["metadata"]
            if meta.get("resourceVersion") not in (None, "", have["resourceVersion"]):
                raise conflict(kind, meta["name"])
            if meta.get("uid") not in (None, "", have["uid"]):
                why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {have['uid']}"
                raise conflict(kind, meta["name"], why)
            new = deepcopy(obj)
            new["kind"], new["apiVersion"] = kind.kind, kind.api_version
            for field in ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp"):
                if field in have:
                    new["metadata"][field] = have[field]
            if new == before:
                return before  # as the real one: a write that changes nothing makes no event
            if "spec" in new and new["spec"] != before.get("spec"):
                new["metadata"]["generation"] = have.get("generation", 0) + 1
            return self._write("MODIFIED", plural, key, new, before)

    def change(self, plural: str, obj: Obj, apply: Callable[[Obj], None]) -> Obj:
        """Store a copy of `obj` after `apply` changed it; for the lab's own parts, which hold the lock."""
        new = deepcopy(obj)
        apply(new)
        if new == obj:
            return obj
        meta = new["metadata"]
        return self._write("MODIFIED", plural, (meta.get("namespace", ""), meta["name"]), new, obj)

    def remove(self, plural: str, namespace: str, name: str) -> Obj:
        """Remove an object at once. Raises ApiError 404."""
        with self.lock:
            before = self.get(plural, namespace, name)
            last = {**before, "metadata": dict(before["metadata"])}
            self._write("DELETED", plural, (namespace, name), last, before)
            return last

    def _write(self, type_: str, plural: str, key: Key, new: Obj, before: Obj | None) -> Obj:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        if type_ == "DELETED":
            del self._objects[plural][key]
        else:
            self._objects[plural][key] = new
        change = Change(version=self.version, type=type_, plural=plural, object=new, before=before)
        history = self._history[plural]
        history.append(change)
        if len(history) > self._history_limit:
            self._floor[plural] = history.popleft().version
        for listener in tuple(self._listeners):
            listener(change)
        return new

    # -- the rest -----------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` inside the lock at every write, until the returned function is called."""
        with self.lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self.lock:
                self._listeners.remove(listener)

        return unsubscribe

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffix(self, length: int = 5) -> str:
        """A random name suffix in the alphabet that Kubernetes uses for one."""
        return "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    def __iter__(self) -> Iterator[Obj]:
        with self.lock:
            return iter([obj for table in self._objects.values() for obj in table.values()])
