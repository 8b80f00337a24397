"""The `trust` section of the policy file: how far tenants may shield their own pods from evictions."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from rebalancer.policy.schema.lists import Globs
from rebalancer.policy.schema.types import AsTuple, Duration, Section, Selector, at_least

Shield = Literal[
    "OptOut",
    "Veto",
    "InProgress",
    "ChangeWindow",
    "Level",
    "Name",
    "Group",
    "Label",
    "Priority",
    "Volume",
    "Health",
]
"""What a pod's creator can do so that the pod is not evicted."""

SHIELDS: tuple[Shield, ...] = get_args(Shield)

Shields = Annotated[tuple[Shield, ...], AsTuple]


class TrustRule(Section):
    """Shields of the pods of some namespaces: what their creators can write so that they are not evicted. A shield that
    doesn't count is ignored; PodDisruptionBudgets, `guards.minReplicas` and all other rules stay.

    `OptOut`: `rebalancer.dev/evict` on the pod or the namespace. `Veto`: annotations of other projects, such as
    `cluster-autoscaler.kubernetes.io/safe-to-evict`. `InProgress`: the annotation `eviction-in-progress`.
    `ChangeWindow`: `rebalancer.dev/change-window`. `Level`: the annotation and label of `serviceLevels`. `Name`: labels
    of `guards.ours` and `safety.serviceIdentity`. `Group`: `guards.groupLabels`. `Label`: `guards.labels.exclude`,
    selectors of `lists.deny` and of `safety.crossCluster.placedBy`. `Priority`: system-critical priorities and
    `guards.priorityBelow`. `Volume`: emptyDir on disk, hostPath and PersistentVolumeClaims that are not local.
    `Health`: pods that are not Ready, and Ready pods of a service that rolls out, is scaled or lacks Ready pods, while
    it has `guards.minReplicas` Ready ones."""

    namespaces: Globs = ("*",)
    """Globs of namespaces."""
    selector: Selector | None = None
    """Labels of the Namespace."""
    shields: Shields = SHIELDS
    """Shields that count."""
    maintenance_shields: Shields | None = None
    """Shields that count against NodeMaintenance. Default: `shields`. With `[]` no pod keeps its node from being
    drained by what its creator wrote."""
    max_pods: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of shielded pods in each namespace; the oldest ones keep their shields. `Health` is not counted.
    Default: any number."""
    max_age: Annotated[Duration, at_least(60)] | None = None
    """Shields of older pods don't count, `Health` excepted. Default: they count for ever."""
