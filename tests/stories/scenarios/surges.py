"""What replacement first must keep, looked at with every change of the lab."""

from dataclasses import dataclass, field

from rebalancer.lab import Lab
from rebalancer.lab.objects.disruption import is_finished, is_ready, is_terminating
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change
from rebalancer.model.cluster.annotations import DELETION_COST

NAME = "app.kubernetes.io/name"


@dataclass(slots=True)
class Readiness:
    """Ready pods of each service, from every change on."""

    lab: Lab
    least: dict[str, int] = field(default_factory=dict)
    """Service -> the fewest that it had at any moment."""

    def begin(self, *services: str) -> "Readiness":
        """Watch these from now on."""
        self.least = {name: self._ready(name) for name in services}
        self.lab.cluster.store.subscribe(self._observe)
        return self

    def _observe(self, change: Change) -> None:
        name = (change.object["metadata"].get("labels") or {}).get(NAME, "")
        if change.plural == "pods" and name in self.least:
            self.least[name] = min(self.least[name], self._ready(name))

    def _ready(self, name: str) -> int:
        return sum(is_ready(each) for each in living(self.lab, name))


def living(lab: Lab, name: str) -> list[Obj]:
    """The pods of a service that are neither terminating nor finished."""
    pods = lab.cluster.pods(workload=name)
    return [each for each in pods if not is_terminating(each) and not is_finished(each)]


def replicas(lab: Lab, name: str) -> int:
    return int(lab.cluster.store.get("deployments", "shop", name)["spec"]["replicas"])


def marked(lab: Lab, name: str) -> list[str]:
    """Names of the living pods with a deletion cost."""
    found = living(lab, name)
    return [each["metadata"]["name"] for each in found if DELETION_COST in (each["metadata"].get("annotations") or {})]


def as_before(lab: Lab, name: str, count: int = 1) -> bool:
    """Whether the service has so many replicas and living pods, and none has a mark."""
    return replicas(lab, name) == count and len(living(lab, name)) == count and not marked(lab, name)
