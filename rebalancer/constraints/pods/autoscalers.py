"""Autoscalers: a service that one is changing right now is left alone.

Its pods come and go, and what they use is that of a number or a size of replicas that is passing. A change by a small
part of its replicas changes the load of the others by no more than the autoscaler tolerates, and keeps none in place:
with many replicas an autoscaler may never rest.
"""

from collections import Counter

import numpy as np

from rebalancer.model.cluster.autoscaling import VPA_UPDATES, HorizontalAutoscaler
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.notation.arrays import Ints
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.reason import Reason, Refusal

SMALL_CHANGE = 0.1
"""Share of a service's replicas; a HorizontalPodAutoscaler's default tolerance. Source: kube-controller-manager,
--horizontal-pod-autoscaler-tolerance."""


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
        self._created: dict[float, Counter[int]] = {}
        """Time -> top owner -> pods that were created later."""

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
        if (
            scaler is not None
            and scaler.is_scaling
            and abs(scaler.desired - scaler.current) > SMALL_CHANGE * scaler.current
        ):
            detail = f"{pod.service} has {scaler.current} pods, {scaler.name} asks for {scaler.desired}"
            return Refusal.of(Reason.AUTOSCALING, detail)
        resized = self._resized.get(int(snapshot.top_owner[owner]))
        if resized is not None:
            return Refusal.of(Reason.AUTOSCALING, f"{pods.names[resized]} of {pod.service} is being resized")
        # NaN: it never scaled
        if scaler is not None and scaler.last_scaled + settles > now and self._was_large(scaler, owner, now - settles):
            return _settling(f"{scaler.name} scaled {pod.service}", scaler.last_scaled, settles=settles, now=now)
        newest = self._updated.get(owner)
        if newest is not None and float(pods.created[newest]) + settles > now:
            what = f"a VerticalPodAutoscaler gave {pods.names[newest]} of {pod.service} other requests"
            return _settling(what, float(pods.created[newest]), settles=settles, now=now)
        return None

    def _was_large(self, scaler: HorizontalAutoscaler, owner: int, since: float) -> bool:
        """Whether a scaling since then can have been by more than a small part of the replicas. How many pods it
        removed isn't known: with few replicas one is a large part."""
        snapshot, pods, small = self._snapshot, self._snapshot.pods, SMALL_CHANGE * scaler.current
        if since not in self._created:
            recent = np.flatnonzero((pods.created > since) & (pods.owner >= 0))
            self._created[since] = Counter(snapshot.top_owner[pods.owner[recent]].tolist())
        return small < 1 or self._created[since][int(snapshot.top_owner[owner])] > small


def _settling(what: str, at: float, *, settles: float, now: float) -> Refusal:
    detail = f"{what} {max(now - at, 0.0):.0f}s ago, next at {clock_time(at + settles)}"
    return Refusal.of(Reason.AUTOSCALING, detail, next_at=at + settles)
