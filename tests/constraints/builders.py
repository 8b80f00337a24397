"""Asks the guards about one pod of a healthy service, a few words of which are changed."""

from collections.abc import Mapping
from typing import Any

from rebalancer.constraints.pods.guards import GuardView, guarded
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import RUNNING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.guards import Guards
from tests.builders import NOW, APod, a_node, a_pod, cluster, projection_of

OPT = "rebalancer.dev/evict"


def view_of(snapshot: ClusterSnapshot, guards: Mapping[str, Any] | None = None, **fields: Any) -> GuardView:
    return GuardView.of(
        projection=projection_of(snapshot), guards=Guards.model_validate(dict(guards or {})), now=NOW, **fields
    )


def asked(
    pod: Mapping[str, Any] | None = None,
    *,
    guards: Mapping[str, Any] | None = None,
    owner: Owner | None = None,
    siblings: int = 2,
    sibling: Mapping[str, Any] | None = None,
    own_pod: tuple[str, str] | None = None,
    node: Mapping[str, Any] | None = None,
    broken: bool = False,
    **snapshot: Any,
) -> Refusal | None:
    """What the guards say of one pod of a service with three, all healthy."""
    fields: dict[str, Any] = {"node": "n1", "owner": "web", **(pod or {})}
    its: APod = a_pod("web-0", **fields)
    others = [
        a_pod(f"web-{index}", **{**fields, "terminating": False, "phase": RUNNING, "ready": True, **(sibling or {})})
        for index in range(1, siblings + 1)
    ]
    made = cluster(
        [a_node("n1", **(node or {}))], [its, *others], owners=[owner] if owner is not None else [], **snapshot
    )
    return guarded(made.pod(0), view_of(made, guards, own_pod=own_pod), broken=broken)


def code(*args: Any, **fields: Any) -> Reason | None:
    refusal = asked(*args, **fields)
    return None if refusal is None else refusal.code


def noted(**annotations: str) -> dict[str, Any]:
    return {"template": {"annotations": annotations}}


def volume(**fields: Any) -> dict[str, Any]:
    return {"template": {"volumes": [fields]}}


def an_owner(kind: str = "ReplicaSet", **fields: Any) -> Owner:
    return Owner(kind=kind, namespace="shop", name="web", uid="u", **fields)
