"""The lab's kubelets: bound pods start and get Ready, terminating pods end, each after its delay in lab seconds.

A pod that breaks (`Breaks`) is started again after 10 s, then 20 s and so on up to 300 s, as by the real kubelet; its
CPU usage continues meanwhile.
"""

from dataclasses import dataclass, field

from rebalancer.lab.clock import timestamp
from rebalancer.lab.controlplane.broken_pods import (
    back_off_seconds,
    break_down,
    fail,
    is_waiting,
    out_of_memory,
    restart,
)
from rebalancer.lab.loads.cpu import Breaks, behaviour_of
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_finished, is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change, Store
from rebalancer.lab.scenarios.build import condition, missing_image, reported_images, set_ready

_START, _READY, _STOP, _FINISH = "start", "ready", "stop", "finish"
_BREAK, _RESTART = "break", "restart"


@dataclass(slots=True, kw_only=True)
class Kubelet:
    """All kubelets. Due steps are stored by pod uid; everything else is read from the pod."""

    store: Store
    log: EventLog
    start_seconds: float
    stop_seconds: float
    pull_bytes_per_second: float | None = None
    _due: dict[tuple[str, str], tuple[float, str, str]] = field(default_factory=dict)
    """(uid, step) -> (lab time, namespace, name)."""
    _addresses: int = 0
    _unseen: dict[tuple[str, str], None] = field(default_factory=dict)
    """(namespace, name) of the pods that changed since the last round, in order."""

    def observe(self, change: Change) -> None:
        """Store listener: queues pods for the next round."""
        if change.plural == "nodes" and change.type != "MODIFIED":
            self._unseen.update(dict.fromkeys(self.store.keys("pods")))
        elif change.plural == "pods":
            meta = change.object["metadata"]
            self._unseen[meta["namespace"], meta["name"]] = None

    def next_due(self) -> float | None:
        """Lab time of the next step, or None when nothing is due."""
        return min((due for due, _, _ in self._due.values()), default=None)

    def run(self, now: float) -> None:
        """Take in changes, then do what is due. The caller holds the lock."""
        unseen, self._unseen = self._unseen, {}
        for namespace, name in unseen:
            pod = self.store.find("pods", namespace, name)
            if pod is not None:
                self._plan(pod, now)
        for (uid, step), (due, namespace, name) in sorted(self._due.items(), key=lambda item: item[1][0]):
            if due > now:
                break
            del self._due[uid, step]
            found = self.store.find("pods", namespace, name)
            if found is not None and found["metadata"]["uid"] == uid:
                self._do(step, found, now)

    def _plan(self, pod: Obj, now: float) -> None:
        uid, node_name = pod["metadata"]["uid"], pod["spec"].get("nodeName") or ""
        node = self.store.find("nodes", "", node_name) if node_name else None
        phase = pod["status"]["phase"]
        behaviour = behaviour_of(pod)
        if is_terminating(pod):
            delay = self.stop_seconds if behaviour.stop_seconds is None else behaviour.stop_seconds
            delay = min(delay, float(pod["metadata"].get("deletionGracePeriodSeconds", 30)))
            self._at(pod, _STOP, now + (delay if phase == "Running" else 0.0))
        elif node_name and node is None:
            self._at(pod, _STOP, now)  # pod garbage collection: its node is gone
        elif node_name and phase == "Pending":
            if "startTime" not in pod["status"]:
                # before images are pulled and containers started
                pod = self.store.change("pods", pod, lambda new: new["status"].update(startTime=timestamp(now)))
            delay = self.start_seconds if behaviour.start_seconds is None else behaviour.start_seconds
            if (uid, _START) not in self._due:
                pulled = now + self._pull_seconds(missing_image(pod, node))
                self._at(pod, _START, pulled + delay / 2)
                if behaviour.ready:
                    self._at(pod, _READY, pulled + delay)
        elif phase == "Running":
            if behaviour.run_seconds is not None:
                self._at(pod, _FINISH, now + behaviour.run_seconds)
            if is_waiting(pod):
                self._at(pod, _RESTART, now + back_off_seconds(pod, behaviour.breaks))
            elif behaviour.breaks is not None and behaviour.breaks.on(node_name):
                self._at(pod, _BREAK, now + behaviour.breaks.after_seconds)
            elif behaviour.leaks and (kill := out_of_memory(pod)) is not None:
                self._at(pod, _BREAK, max(now, kill[0]))

    def _pull_seconds(self, image: Obj | None) -> float:
        if image is None or self.pull_bytes_per_second is None:
            return 0.0
        return float(image["sizeBytes"] / self.pull_bytes_per_second)

    def keep_image(self, pod: Obj) -> Obj | None:
        """Add the pod's image to its node; returns the image, None when it was there. The caller holds the lock."""
        node = self.store.find("nodes", "", pod["spec"]["nodeName"])
        image = missing_image(pod, node)
        if image is None or node is None:
            return None
        images = reported_images([*(node["status"].get("images") or ()), image])
        self.store.change("nodes", node, lambda new: new["status"].update(images=images))
        return image

    def _at(self, pod: Obj, step: str, due: float) -> None:
        meta = pod["metadata"]
        self._due.setdefault((meta["uid"], step), (due, meta["namespace"], meta["name"]))

    def _do(self, step: str, pod: Obj, now: float) -> None:
        meta = pod["metadata"]
        if step == _STOP:
            self.store.remove("pods", meta["namespace"], meta["name"])
            for other in (_START, _READY, _FINISH, _BREAK, _RESTART):
                self._due.pop((meta["uid"], other), None)
            self._note("deleted", pod, now)
        elif step == _START and pod["status"]["phase"] == "Pending":
            image = self.keep_image(pod)
            if image is not None:
                self._note("pulled", pod, now, detail=image["names"][0])
            self.store.change("pods", pod, lambda new: self.start(new, now, ready=False))
            self._note("started", pod, now)
        elif step == _BREAK and pod["status"]["phase"] == "Running" and not is_waiting(pod):
            behaviour = behaviour_of(pod)
            kill = out_of_memory(pod) if behaviour.leaks else None
            how = behaviour.breaks or (kill[1] if kill is not None else Breaks(after_seconds=0.0))
            self.end_containers(pod, how, now)
        elif step == _RESTART and is_waiting(pod):
            self.store.change("pods", pod, lambda new: restart(new, now))
            behaviour = behaviour_of(pod)
            if behaviour.ready:
                self._at(pod, _READY, now + (behaviour.start_seconds or self.start_seconds) / 2)
            self._note("restarted", pod, now)
        elif step == _READY and pod["status"]["phase"] == "Running" and not is_ready(pod) and not is_waiting(pod):
            self.store.change("pods", pod, lambda new: set_ready(new, now, ready=True))
            self._note("ready", pod, now)
        elif step == _FINISH and not is_finished(pod):
            self.store.change("pods", pod, lambda new: _succeed(new, now))
            self._note("finished", pod, now)

    def end_containers(self, pod: Obj, how: Breaks, now: float) -> None:
        """A running pod's containers end: they wait for a restart, or it has failed. The caller holds the lock."""
        for step in (_READY, _BREAK):
            self._due.pop((pod["metadata"]["uid"], step), None)
        self.store.change("pods", pod, lambda new: (break_down if how.restarts else fail)(new, how, now))
        self._note("broken" if how.restarts else "failed", pod, now, detail=how.pod_reason or how.reason)

    def start(self, pod: Obj, now: float, *, ready: bool, restarts: int = 0) -> None:
        """Make a bound pod run: phase, addresses, conditions, container statuses. Changes `pod`."""
        self._addresses += 1
        node = self.store.find("nodes", "", pod["spec"]["nodeName"])
        host = next((each["address"] for each in (node or {}).get("status", {}).get("addresses", ())), "127.0.0.1")
        count = self._addresses
        address = f"10.{128 + count // 65536 % 64}.{count // 256 % 256}.{count % 256}"
        pod["status"].update(
            phase="Running",
            podIP=address,
            podIPs=[{"ip": address}],
            hostIP=host,
            hostIPs=[{"ip": host}],
            startTime=pod["status"].get("startTime") or timestamp(now),
            containerStatuses=[
                {
                    "name": each["name"],
                    "image": each.get("image", ""),
                    "imageID": "",
                    "ready": ready,
                    "started": True,
                    "restartCount": restarts,
                    "state": {"running": {"startedAt": timestamp(now)}},
                    "lastState": {},
                }
                for each in pod["spec"].get("containers", ())
            ],
            conditions=[condition("Initialized", True, now), condition("PodScheduled", True, now)],
        )
        set_ready(pod, now, ready=ready)

    def _note(self, event: str, pod: Obj, now: float, *, detail: str = "") -> None:
        meta = pod["metadata"]
        node = pod["spec"].get("nodeName") or ""
        self.log.add(
            Entry(
                event=event,
                at=now,
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                node=node,
                detail=detail,
            )
        )


def _succeed(pod: Obj, now: float) -> None:
    pod["status"]["phase"] = "Succeeded"
    for each in pod["status"].get("conditions") or ():
        if each["type"] in ("Ready", "ContainersReady"):
            each.update(status="False", lastTransitionTime=timestamp(now))
    for container in pod["status"].get("containerStatuses") or ():
        container["ready"] = False
        container["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
