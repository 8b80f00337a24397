"""A HorizontalPodAutoscaler's controller, on CPU utilization.

Source: pkg/controller/podautoscaler (`GetResourceReplicas`, `stabilizeRecommendation`). Requests are those of the Ready
pods; pods that are not Ready don't count. Not modelled: other metrics, behaviour policies, a missing target.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping

from rebalancer.lab.clock import timestamp
from rebalancer.lab.controlplane.pod_templates import effective
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store

PLURAL = "horizontalpodautoscalers"
SYNC_SECONDS = 60.0
"""Every 15 seconds in kube-controller-manager; the lab's demand changes slowly."""
STABILIZATION_SECONDS = 300.0
TOLERANCE = 0.1
_SCALED = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


class HorizontalAutoscaler:
    """All of them. `cores()` is the CPU of each pod now, by its uid."""

    def __init__(self, *, store: Store, log: EventLog, cores: Callable[[], Mapping[str, float]]) -> None:
        self._store = store
        self._log = log
        self._cores = cores
        self._due = store.clock.now() + SYNC_SECONDS
        self._recommended: dict[str, deque[tuple[float, int]]] = {}
        """Autoscaler uid -> (lab time, replicas) of the stabilization window."""

    def next_due(self) -> float | None:
        """Lab time of the next synchronization; None without autoscalers."""
        return self._due if self._store.keys(PLURAL) else None

    def run(self, now: float) -> None:
        """Synchronize all of them, when it is time. The caller holds the lock."""
        if now < self._due:
            return
        self._due = now + SYNC_SECONDS
        scalers = self._store.sorted(PLURAL)
        if not scalers:
            return
        cores = self._cores()
        by_service: dict[tuple[str, str], list[Obj]] = {}
        for pod in self._store.sorted("pods"):
            name = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name", "")
            if is_ready(pod) and not is_terminating(pod):
                by_service.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
        for scaler in scalers:
            self._sync(scaler, by_service, cores, now)

    def _sync(
        self, scaler: Obj, by_service: Mapping[tuple[str, str], list[Obj]], cores: Mapping[str, float], now: float
    ) -> None:
        meta, spec = scaler["metadata"], scaler["spec"]
        plural = _SCALED[spec["scaleTargetRef"]["kind"]]
        target = self._store.find(plural, meta["namespace"], spec["scaleTargetRef"]["name"])
        if target is None:
            return
        current = int(target["spec"].get("replicas", 1))
        pods = by_service.get((meta["namespace"], target["metadata"]["name"]), [])
        used = sum(cores.get(pod["metadata"]["uid"], 0.0) for pod in pods)
        requested = sum(effective(pod["spec"]).get("cpu", 0.0) for pod in pods)
        if not pods or requested <= 0:
            return
        utilization = 100.0 * used / requested
        wanted = spec["metrics"][0]["resource"]["target"]["averageUtilization"]
        ratio = utilization / wanted
        desired = current if abs(ratio - 1.0) <= TOLERANCE else math.ceil(ratio * len(pods))
        desired = min(max(desired, int(spec.get("minReplicas", 1))), int(spec["maxReplicas"]))
        desired = min(desired, max(2 * current, current + 4))
        window = self._recommended.setdefault(meta["uid"], deque([(now, current)]))
        window.append((now, desired))
        while window[0][0] <= now - STABILIZATION_SECONDS:
            window.popleft()
        if desired < current:
            desired = min(current, max(count for _, count in window))
        if desired != current:
            self._store.update(plural, {**target, "spec": {**target["spec"], "replicas": desired}})
            self._log.add(
                Entry(
                    event="scaled",
                    at=now,
                    namespace=meta["namespace"],
                    name=target["metadata"]["name"],
                    detail=f"{current} to {desired}",
                )
            )
        self._report(scaler, current=current, desired=desired, utilization=round(utilization), now=now)

    def _report(self, scaler: Obj, *, current: int, desired: int, utilization: int, now: float) -> None:
        measured = {"name": "cpu", "current": {"averageUtilization": utilization}}
        status = {
            **(scaler.get("status") or {}),
            "currentReplicas": current,
            "desiredReplicas": desired,
            "currentMetrics": [{"type": "Resource", "resource": measured}],
        }
        if desired != current:
            status["lastScaleTime"] = timestamp(now)
        self._store.change(PLURAL, scaler, lambda new: new.update(status=status))
