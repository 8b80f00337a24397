"""Autoscalers of services: what a HorizontalPodAutoscaler last decided, and the mark of a VerticalPodAutoscaler."""

from dataclasses import dataclass
from typing import Final

VPA_UPDATES: Final = "vpaUpdates"
"""Annotation of a pod whose requests a VerticalPodAutoscaler set at its creation."""

DEFAULT_TOLERANCE = 0.1
"""Source: kube-controller-manager, --horizontal-pod-autoscaler-tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMetric:
    """A metric that is a mean over the pods: CPU or memory, per pod or of one container."""

    name: str
    current: float
    """In percent of the request, or in the metric's own unit."""
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizontalAutoscaler:
    """A HorizontalPodAutoscaler with its controller's last status."""

    name: str
    namespace: str
    target: tuple[str, str]
    """Kind and name of what it scales."""
    current: int
    desired: int
    active: bool
    """False: it can't read its metrics, or is not able to scale. `desired` is then an old figure."""
    last_scaled: float
    """Seconds since the epoch; NaN for never."""
    metrics: tuple[ScalingMetric, ...] = ()
    tolerance: float = DEFAULT_TOLERANCE
    """Share of the target by which a mean may exceed it before pods are added."""

    @property
    def is_scaling(self) -> bool:
        """Whether it wants another number of pods than there are."""
        return self.active and self.current != self.desired
