"""A running daemon in a practice cluster into which strangers come, change and go.

The practice cluster has nothing to be moved but by an alert: 65 % on its warm nodes, 90 % is hot. So no pod of it may
be evicted while nobody has sent an alert, whatever strangers do, and for each alert exactly one pod of its node. The
strangers are in no pool and in namespaces of their own; evictions of their pods are counted only.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab
from rebalancer.lab.objects.kinds import Obj
from tests.e2e.servers import POOL, DaemonProcess, alert_policy, daemon, evicted, until, warm_lab
from tests.faults.scenarios.strangers import GIVEN, SPACES, Strangers
from tests.faults.servers.crowd import Crowd, Place, crowded

BATCH = 1500
"""Objects that come in a round."""
MOST_AT_ONCE = 4000
CHANGED_SHARE, KEPT_SHARE = 0.2, 0.6
"""Of the strangers in a round: those that change, and those that stay."""
ALERT_EVERY = 10
"""Rounds: after so many an alert is to move its pod, and all strangers leave."""
MANY = 100_000
CYCLE_SECONDS, WATCH_SECONDS = 60.0, 60.0
OWN_NODES = {"lab": "own"}
FREE = ("cold-5", "cold-6")
"""No stranger stands on these nodes, nor in a topology with them."""
STRATEGIES = (
    "LowNodeUtilization",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingTopologySpreadConstraint",
)


@dataclass(slots=True, kw_only=True)
class Fuzzed:
    """What a run has shown; `wrong` is empty where everything held."""

    objects: int = 0
    """That came."""
    events: int = 0
    cycles: int = 0
    alerts: int = 0
    strangers_evicted: int = 0
    memory_mib: int = 0
    """Of the daemon at the end."""
    wrong: list[str] = field(default_factory=list)


class Run:
    """One daemon among strangers."""

    def __init__(self, lab: Lab, crowd: Crowd, running: DaemonProcess, seed: int) -> None:
        self._lab, self._crowd, self._running = lab, crowd, running
        self._draw = random.Random(seed)
        own = [uid for kind in ("replicasets", "pods") for uid in _uids(lab, kind)]
        names = [node["metadata"]["name"] for node in lab.cluster.nodes() if node["metadata"]["name"] not in FREE]
        self._strangers = Strangers(self._draw, nodes=names, uids=own)
        self._alerted: list[str] = []
        self._seen_cycles = self._seen_lines = 0
        self.found = Fuzzed()

    def round(self, count: int) -> None:
        """So many strangers come, some change, some go; then a cycle has to end as it does without them."""
        draw, crowd = self._draw, self._crowd
        come = [self._strangers.object() for _ in range(count)]
        there = crowd.places()
        draw.shuffle(there)
        change = there[: int(len(there) * CHANGED_SHARE)]
        go = there[int(len(there) * KEPT_SHARE) :] if len(there) + count > MOST_AT_ONCE else []
        changed = [(place[0], self._strangers.changed(place[0], self._object(place))) for place in change]
        crowd.write([*come, *changed], go)
        for place in crowd.places()[-20:]:
            self._strangers.uid(str(self._object(place)["metadata"]["uid"]))
        self.found.objects += count
        self.cycle()

    def checkpoint(self) -> None:
        """An alert moves one pod of its node among strangers, who then leave.

        Those that wait for a node leave before: they take the room of replacements, as in kube-scheduler.
        """
        crowd = self._crowd
        pods = [place for place in crowd.places() if place[0] == "pods"]
        crowd.write(remove=[place for place in pods if not self._object(place)["spec"].get("nodeName")])
        self.cycle()
        node = f"warm-{len(self._alerted) + 1}"
        self._alerted.append(node)
        self._running.alert(node)
        self._until(lambda: bool(evicted(self._lab, node)), f"the alert for {node} moves nothing", CYCLE_SECONDS)
        self._until(self._running.ready, "not ready", CYCLE_SECONDS)
        self.found.alerts += 1
        self._crowd.write(remove=self._crowd.places())
        self.cycle()

    def cycle(self) -> None:
        """Ask for one, and check how it ends."""
        before = len(self._cycles())
        nodes = [node["metadata"]["name"] for node in self._lab.cluster.nodes()]
        # a kind may be watched from now on, and is read first
        trigger = {"nodes": nodes}
        self._until(lambda: self._running.post(trigger, path="/api/v1/trigger") == 202, "refused", CYCLE_SECONDS)
        self._until(lambda: len(self._cycles()) > before, "no cycle ends", CYCLE_SECONDS)
        self.check()

    def check(self) -> None:
        """What must hold at any time."""
        if (code := self._running.process.poll()) is not None:
            raise AssertionError(f"the daemon ended with {code}\n{self._running.tail()}")
        cycles = self._cycles()
        for each in cycles[self._seen_cycles :]:
            self.found.cycles += 1
            if not each["finished"] or each["stopped"] is not None:
                self._is_wrong(f"a cycle did not end: {each}")
        self._seen_cycles = len(cycles)
        lines = self._running.log
        for line in lines[self._seen_lines :]:
            if "raw" in line or "exception" in line:
                self._is_wrong(f"not a line of the log: {line}")
            if line.get("event") == "eviction" and not str(line["pod"]).startswith(
                tuple(f"{each}/" for each in SPACES)
            ):
                self._check_eviction(line)
        self._seen_lines = len(lines)
        counts = {name: len(evicted(self._lab, name)) for name in {each.node for each in evicted(self._lab)}}
        if strange := {name: count for name, count in counts.items() if name not in self._alerted or count > 1}:
            self._is_wrong(f"evicted without a reason: {strange}")

    def end(self) -> None:
        """Every event has arrived, by watches that were never lost."""
        running, crowd = self._running, self._crowd

        def missing() -> dict[str, float]:
            late = {
                kind: count - running.metric("rebalancer_watch_events_total", kind=kind) for kind, count in written()
            }
            return {kind: count for kind, count in late.items() if count > 0}

        def written() -> list[tuple[str, int]]:
            return [(kind, count) for kind, count in crowd.written.items() if kind in WATCHED]

        self._until(lambda: not missing(), "events did not arrive", WATCH_SECONDS)
        if late := missing():
            self._is_wrong(f"events that did not arrive: {late}")
        if relists := running.metric("rebalancer_watch_relists_total"):
            self._is_wrong(f"{relists:g} lists were read again")
        self.check()
        self.found.events = sum(crowd.written.values())
        self.found.strangers_evicted = len(crowd.evicted)
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        self.found.memory_mib = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) >> 10

    # ---- inside

    def _object(self, place: Place) -> Obj:
        return dict(self._crowd.get(*place))

    def _cycles(self) -> list[dict[str, Any]]:
        return self._running.events("cycle")

    def _check_eviction(self, line: dict[str, Any]) -> None:
        if line["node"] not in self._alerted:
            self._is_wrong(f"eviction of a pod of the cluster's own: {line}")

    def _is_wrong(self, text: str) -> None:
        if len(self.found.wrong) < 20:
            self.found.wrong.append(text)

    def _until(self, what: Callable[[], bool], problem: str, seconds: float) -> None:
        def over() -> bool:
            return what() or self._running.process.poll() is not None

        until(over, lambda: f"{problem}\n{self._running.tail()}", seconds)
        if (code := self._running.process.poll()) is not None:
            raise AssertionError(f"the daemon ended with {code}\n{self._running.tail()}")


WATCHED = frozenset(GIVEN) - {"persistentvolumeclaims", "persistentvolumes"}
"""Volumes are watched from when a pod has a claim."""


def fuzz(
    folder: Path, *, objects: int, seed: int, batch: int = BATCH, each: Callable[[Fuzzed], None] = lambda _: None
) -> Fuzzed:
    """So many objects come, in rounds."""
    rounds = -(-objects // batch)
    with warm_lab(warm=rounds // ALERT_EVERY + 2) as lab, crowded(lab, folder / "config") as crowd:
        for node in lab.cluster.nodes():
            lab.cluster.label_node(node["metadata"]["name"], {**OWN_NODES, "topology.kubernetes.io/zone": None})
        with daemon(folder, _policy(lab), folder / "config") as running:
            until(running.leads, running.tail)
            run = Run(lab, crowd, running, seed)
            try:
                run.cycle()
                for number in range(rounds):
                    run.round(min(batch, objects - run.found.objects))
                    if number % ALERT_EVERY == ALERT_EVERY - 1 or number == rounds - 1:
                        run.checkpoint()
                    each(run.found)
                run.end()
            except AssertionError as error:
                run.found.wrong.append(str(error))
    return run.found


def _uids(lab: Lab, kind: str) -> list[str]:
    return [str(obj["metadata"]["uid"]) for obj in lab.cluster.store.sorted(kind)]


def _policy(lab: Lab) -> dict[str, Any]:
    wide = [{"max": MANY, "per": "1m"}]
    return alert_policy(
        lab.prometheus_url,
        pools=[{**POOL, "selector": {"matchLabels": OWN_NODES}}],
        strategies=[{"name": name, "interval": "1h"} for name in STRATEGIES],
        guards={"minAge": "0s"},
        # strangers' pods that may be evicted use up no limit of the others
        limits={
            "perCycle": MANY,
            "global": {"evictions": wide},
            "cluster": {"inFlight": MANY, "evictions": wide},
            "pool": {"evictions": wide},
            "node": {"evictions": wide},
            "replacements": {"perNode": MANY},
        },
        safety={
            "circuitBreaker": {"lateInPool": MANY, "lateInCluster": MANY},
            "cooldowns": {"node": "0s", "newNode": "0s", "poolAfterScaleUp": "0s"},
        },
    )
