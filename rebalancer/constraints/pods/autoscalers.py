"""Autoscalers: a service that one is changing right now is left alone.

Its pods come and go, and what they use is that of a number or a size of replicas that is passing.
"""

import numpy as np

from rebalancer.model.cluster.autoscaling import VPA_UPDATES
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.notation.arrays import Ints
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.reason import Reason, Refusal


class ServicesInChange:
    """The services of a snapshot that autoscalers are changing."""

    def __init__(self, snapshot: ClusterSnapshot, like: Ints) -> None:
        """`like` (pods,) as `newest_siblings`."""
        self._snapshot = snapshot
        pods = snapshot.pods
        states = np.array([status.resizing for status in snapshot.statuses], dtype=np.bool_)
        rows = np.flatnonzero(states[pods.status] & (pods.owner >= 0)) if states.any() else ()
        self._resized = {int(snapshot.top_owner[pods.owner[row]]): int(row) for row in rows}
        """Top owner -> one of its pods that is being resized."""
        others = np.flatnonzero(like != np.arange(len(like)))
        newest = dict(zip(pods.owner[others].tolist(), like[others].tolist(), strict=True))
        self._updated = {owner: pod for owner, pod in newest.items() if self._is_updated(pod)}
        """Direct owner -> its newest pod, where a VerticalPodAutoscaler gave that one other requests."""

    def _is_updated(self, pod: int) -> bool:
        template = self._snapshot.pod_templates[int(self._snapshot.pods.template[pod])]
        return VPA_UPDATES in template.annotations

    def refuses(self, pod: Pod, *, settles: float, now: float) -> Refusal | None:
        """Why the autoscalers of the pod's service keep it in place, or None. `settles`: seconds after a change."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        owner = int(pods.owner[pod.index])
        if owner < 0:
            return None
        scaler = snapshot.autoscaler_of(pod.service)
        if scaler is not None and scaler.is_scaling:
            detail = f"{pod.service} has {scaler.current} pods, {scaler.name} asks for {scaler.desired}"
            return Refusal.of(Reason.AUTOSCALING, detail)
        resized = self._resized.get(int(snapshot.top_owner[owner]))
        if resized is not None:
            return Refusal.of(Reason.AUTOSCALING, f"{pods.names[resized]} of {pod.service} is being resized")
        if scaler is not None and scaler.last_scaled + settles > now:  # NaN: it never scaled
            return _settling(f"{scaler.name} scaled {pod.service}", scaler.last_scaled, settles=settles, now=now)
        newest = self._updated.get(owner)
        if newest is not None and float(pods.created[newest]) + settles > now:
            what = f"a VerticalPodAutoscaler gave {pods.names[newest]} of {pod.service} other requests"
            return _settling(what, float(pods.created[newest]), settles=settles, now=now)
        return None


def _settling(what: str, at: float, *, settles: float, now: float) -> Refusal:
    detail = f"{what} {max(now - at, 0.0):.0f}s ago, next at {clock_time(at + settles)}"
    return Refusal.of(Reason.AUTOSCALING, detail, next_at=at + settles)
