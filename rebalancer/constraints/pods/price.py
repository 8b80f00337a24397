"""The price of an eviction, in ordinary evictions.

One of a service with many replicas that ends within seconds and was not evicted today costs about 1:

    price = cost of the service level x (1 + the terms)

Of candidates that relieve their node alike the cheapest goes first, and none goes whose relief is not worth its price
(`planner.candidates.worth`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.notation.figures import age, counted

GRACE_SECONDS, MOST_GRACE = 600.0, 2.0
"""A termination grace period that costs an ordinary eviction more, and what any costs at most: the author of a pod
sets it, and it must not keep the pod in place."""
PRIORITY = 1_000_000.0
"""A priority that costs an ordinary eviction more; higher ones cost no more than that."""
WHOLE_DEVICES = 2.0
"""What all devices of a node cost, such as its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """See the module. The terms are in ordinary evictions."""

    level: float
    """Cost of the service level."""
    replicas: float
    """The pod's share of its service's replicas."""
    grace: float
    priority: float
    devices: float
    """Of extended resources: the largest share of its node that the pod holds."""
    evicted: float
    """Evictions of its service, as far as limits and cooldowns count them, per replica, and those of its own
    predecessors."""
    details: Mapping[str, str]
    """Term -> what it is of."""

    @property
    def total(self) -> float:
        """The price."""
        return self.level * (1.0 + sum(each for _, each in self._terms()))

    def __str__(self) -> str:
        terms = [f"{value:.2g} for {self.details[name]}" for name, value in self._terms() if value >= 0.005]
        level = "" if self.level == 1.0 else f"{self.level:g} by service level x "
        inside = " + ".join(["1", *terms])
        return f"{self.total:.2g} = {level}({inside})" if level and terms else f"{self.total:.2g} = {level}{inside}"

    def _terms(self) -> list[tuple[str, float]]:
        names = ("replicas", "grace", "priority", "devices", "evicted")
        return [(name, getattr(self, name)) for name in names]


def price_of(
    pod: Pod, *, level: float, replicas: int, extended: Mapping[str, float], of_service: int, of_pod: int
) -> Price:
    """`level`: cost of its service level; `replicas`: desired ones of its service; `extended`: allocatable extended
    resources of its node; `of_service`, `of_pod`: earlier evictions of the service, and of the pod's predecessors."""
    template, count = pod.template, max(replicas, 1)
    shares = {name: held / extended[name] for name, held in template.extended_requests.items() if extended.get(name)}
    device = max(shares, key=lambda name: (shares[name], name), default="")
    return Price(
        level=level,
        replicas=1.0 / count,
        grace=min(template.grace_seconds / GRACE_SECONDS, MOST_GRACE),
        priority=min(max(pod.priority, 0) / PRIORITY, 1.0),
        devices=WHOLE_DEVICES * min(shares.get(device, 0.0), 1.0),
        evicted=of_service / count + of_pod,
        details={
            "replicas": f"1 of {counted(count, 'replica')}",
            "grace": f"a grace period of {age(template.grace_seconds)}",
            "priority": f"priority {pod.priority}",
            "devices": device,
            "evicted": f"{counted(of_service, 'recent eviction')} of its service, {of_pod} of its predecessors",
        },
    )
