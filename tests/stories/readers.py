"""What happened in a lab, by its own log and objects: moves, taints, cordons, and pods at every moment. Nothing here
reads what the program reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer.lab import Lab
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.store import Change
from rebalancer.model.cluster.steering import SOFT_TAINT

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint that comes and goes with a cordon."""

# ---- what the log says


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One eviction, and the pod that took the evicted one's place."""

    at: float
    service: str
    uid: str
    """Of the pod that was evicted."""
    new_uid: str
    """Of its replacement; empty while there is none."""
    source: str
    target: str
    """Empty while the replacement waits."""
    ready_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """For how long a node had a taint: our soft one, or that of a cordon."""

    node: str
    value: str
    start: float
    end: float | None
    """None while it is there, or when the node was removed."""


def service_of(entry: Entry) -> str:
    """`cart-7d9f-x2x2x` (a Deployment's) is of `cart`, and so is `cart-0`."""
    parts = entry.name.split("-")
    return "-".join(parts[:-1]) if parts[-1].isdigit() and len(parts[-1]) < 3 else "-".join(parts[:-2])


class Log(tuple[Entry, ...]):
    """The entries of a lab's log up to a moment, and what they mean."""

    __slots__ = ()

    @classmethod
    def of(cls, lab: Lab) -> "Log":
        return cls(lab.log.entries())

    @property
    def evicted(self) -> list[Entry]:
        return [each for each in self if each.event == "eviction" and each.code == 201 and not each.dry_run]

    @property
    def moves(self) -> list[Moved]:
        """Every eviction with the first new pod of its owner afterwards, oldest first; only for labs in which nothing
        else makes pods."""
        uids = {each.uid for each in self.evicted}
        taken: set[str] = set()
        found = []
        for at, leaving in enumerate(self):
            if leaving.event != "terminating" or leaving.uid not in uids:
                continue
            name, new = service_of(leaving), None
            for each in self[at:]:
                if each.event == "created" and service_of(each) == name and each.uid not in taken:
                    new = each.uid
                    taken.add(new)
                    break
            target = next((each.node for each in self[at:] if each.event == "bound" and each.uid == new), "")
            ready = next((each.at for each in self[at:] if each.event == "ready" and each.uid == new), None)
            found.append(
                Moved(
                    at=leaving.at,
                    service=name,
                    uid=leaving.uid,
                    new_uid=new or "",
                    source=leaving.node,
                    target=target,
                    ready_at=ready,
                )
            )
        assert len(found) == len(uids)
        return found

    @property
    def returned(self) -> list[Moved]:
        return [each for each in self.moves if each.source == each.target]

    @property
    def to_and_fro(self) -> list[tuple[Moved, Moved]]:
        """Two moves in a row of the same replica of a service, the second of which undid the first."""
        moved = self.moves
        by_uid = {each.uid: each for each in moved}
        pairs = [(each, by_uid[each.new_uid]) for each in moved if each.new_uid in by_uid]
        return [(one, two) for one, two in pairs if one.source == two.target != one.target]

    @property
    def chains(self) -> list[list[Moved]]:
        """The moves of each replica one after the other: the pod, what came in its place, what came in the place of
        that."""
        moved = self.moves
        after = {each.uid: each for each in moved}
        firsts = [each for each in moved if each.uid not in {one.new_uid for one in moved}]
        found = []
        for first in firsts:
            chain = [first]
            while chain[-1].new_uid in after:
                chain.append(after[chain[-1].new_uid])
            found.append(chain)
        return found

    @property
    def moved_once(self) -> bool:
        """Whether nothing that came in a moved pod's place was moved again, and nothing came back to where it left."""
        return all(len(chain) == 1 and chain[0].target not in ("", chain[0].source) for chain in self.chains)

    def most_out_at_once(self, name: str) -> int:
        """Of a service's pods: how many had to go at the same time, without a replacement that is Ready."""
        out = most = 0
        for entry in self:
            if service_of(entry) == name:
                out += {"terminating": 1, "ready": -1}.get(entry.event, 0)
                most = max(most, out)
        return most

    @property
    def stints(self) -> list[Stint]:
        """Every time that a node had our soft taint."""
        return self._tainted(SOFT_TAINT)

    @property
    def cordons(self) -> list[Stint]:
        """Every time that a node was cordoned after the lab's start, by any client."""
        return self._tainted(UNSCHEDULABLE)

    def _tainted(self, key: str) -> list[Stint]:
        begun: dict[str, Entry] = {}
        found = []
        for each in self:
            if each.key != key:
                continue
            if each.event == "tainted":
                begun[each.node] = each
            elif each.node in begun:
                began = begun.pop(each.node)
                found.append(Stint(node=each.node, value=began.value, start=began.at, end=each.at))
        found += [Stint(node=each.node, value=each.value, start=each.at, end=None) for each in begun.values()]
        return sorted(found, key=lambda each: (each.start, each.node))

    def most_tainted_at_once(self, names: Iterable[str]) -> int:
        """How many of these nodes had our taint at the same moment, ever."""
        watched, now, most = set(names), set[str](), 0
        for each in self:
            if each.key == SOFT_TAINT and each.node in watched:
                (now.add if each.event == "tainted" else now.discard)(each.node)
                most = max(most, len(now))
        return most


def most_in_any_window(times: Iterable[float], seconds: float) -> int:
    at = sorted(times)
    return max((sum(start <= one < start + seconds for one in at) for start in at), default=0)


# ---- the lab now


def cordoned(lab: Lab) -> set[str]:
    """Nodes that are cordoned, by any client."""
    with lab.cluster.lock:
        return {each["metadata"]["name"] for each in lab.cluster.nodes() if each["spec"].get("unschedulable")}


def pods_by_node(lab: Lab) -> dict[str, set[str]]:
    """Node -> uids of the pods that are on it."""
    with lab.cluster.lock:
        found: dict[str, set[str]] = {each["metadata"]["name"]: set() for each in lab.cluster.nodes()}
        for pod in lab.cluster.store.sorted("pods"):
            if pod["spec"].get("nodeName"):
                found[pod["spec"]["nodeName"]].add(pod["metadata"]["uid"])
    return found


def empty_nodes(lab: Lab) -> set[str]:
    """Nodes without any pod."""
    return {name for name, uids in pods_by_node(lab).items() if not uids}


def annotate(lab: Lab, plural: str, name: str, key: str, value: str | None, *, namespace: str = "") -> None:
    """As `kubectl annotate`; None takes it off."""

    def apply(new: dict[str, Any]) -> None:
        have = {**(new["metadata"].get("annotations") or {}), key: value}
        new["metadata"]["annotations"] = {each: text for each, text in have.items() if text is not None}

    with lab.cluster.lock:
        lab.cluster.store.change(plural, lab.cluster.store.get(plural, namespace, name), apply)


def taints_on(lab: Lab, name: str) -> list[tuple[str, str, str]]:
    """(key, value, effect) of everything that is on a node now."""
    with lab.cluster.lock:
        taints = lab.cluster.store.get("nodes", "", name)["spec"].get("taints") or ()
    return [(each["key"], each.get("value", ""), each["effect"]) for each in taints]


def ours_on(lab: Lab) -> dict[str, str]:
    """Node -> value of our taint that is on it now."""
    names = [each["metadata"]["name"] for each in lab.cluster.nodes()]
    return {name: value for name in names for key, value, _ in taints_on(lab, name) if key == SOFT_TAINT}


# ---- at every moment


@dataclass(slots=True, kw_only=True)
class Watch:
    """Sees every single change of the lab, inside its lock, and keeps the worst of what must never be."""

    least_ready: Mapping[str, int]
    """Service -> so many of its pods its budget wants ready."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """Node that may be emptied -> its wave."""
    broken: list[tuple[float, str, int]] = field(default_factory=list)
    """(when, service, pods ready) of each moment with too few."""
    waves: set[frozenset[str]] = field(default_factory=set)
    """Which waves had nodes in work (cordoned and not empty) at the same moment."""
    most_in_work: int = 0
    """Nodes cordoned and not empty, at any moment."""
    _ready: dict[str, set[str]] = field(default_factory=dict)
    _on: dict[str, set[str]] = field(default_factory=dict)
    _cordoned: set[str] = field(default_factory=set)

    def begin(self, lab: Lab) -> "Watch":
        """From now on."""
        with lab.cluster.lock:
            for pod in lab.cluster.store.sorted("pods"):
                self._take_in(pod, gone=False)
            lab.cluster.store.subscribe(lambda change: self._see(change, lab.clock.now()))
        return self

    def _see(self, change: Change, now: float) -> None:
        if change.plural == "pods":
            self._take_in(change.object, gone=change.type == "DELETED")
            name = _service(change.object)
            count = len(self._ready.get(name, ()))
            if count < self.least_ready.get(name, 0):
                self.broken.append((now, name, count))
        elif change.plural == "nodes":
            name = change.object["metadata"]["name"]
            there = change.type != "DELETED" and change.object["spec"].get("unschedulable")
            (self._cordoned.add if there else self._cordoned.discard)(name)
        else:
            return
        in_work = [name for name in self._cordoned if self._on.get(name) and name in self.group_of]
        self.most_in_work = max(self.most_in_work, len(in_work))
        self.waves.add(frozenset(self.group_of[name] for name in in_work))

    def _take_in(self, pod: dict[str, Any], *, gone: bool) -> None:
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
        serves = is_ready and not gone and not pod["metadata"].get("deletionTimestamp")
        ready = self._ready.setdefault(_service(pod), set())
        (ready.add if serves else ready.discard)(uid)
        if node := pod["spec"].get("nodeName"):
            on = self._on.setdefault(node, set())
            (on.discard if gone else on.add)(uid)


def _service(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name", ""))


def unready_seconds(lab: Lab, name: str, *, at_start: int) -> float:
    """For how long a service that began with so many Ready pods had none."""
    ready, since, seconds = at_start, None, 0.0
    gone: set[str] = set()
    for each in Log.of(lab):
        if service_of(each) != name or each.uid in gone:
            continue
        if each.event == "ready":
            ready += 1
        elif each.event in ("terminating", "broken", "failed"):
            ready -= 1
            gone.add(each.uid)
        if ready == 0 and since is None:
            since = each.at
        elif ready > 0 and since is not None:
            seconds, since = seconds + each.at - since, None
    return seconds + (lab.clock.now() - since if since is not None else 0.0)
