"""The first pod of a small cluster is moved: where its replacement lands."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Landing, Placed
from rebalancer.placement.landing.model import PlacementModel
from tests.builders import ANode, APod, a_pod, cluster

HOSTNAME = "kubernetes.io/hostname"
OFF = {"unschedulable": True}


def mover(**fields: Any) -> APod:
    return a_pod("mover", "home", **{"owner": "web", **fields})


def waiting(name: str, **fields: Any) -> APod:
    return a_pod(name, **{"owner": "batch", "phase": PENDING, "ready": False, **fields})


def model_of(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> tuple[PlacementModel, ClusterSnapshot]:
    made = cluster(nodes, pods, **fields)
    return PlacementModel(made), made


def lands(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> dict[str, float]:
    """Where the replacement of the first pod lands, with which probability."""
    model, made = model_of(nodes, pods, **fields)
    landing = model.landings(made.pod(0))
    assert isinstance(landing, Landing)
    return dict(zip([made.nodes.names[node] for node in landing.nodes], landing.shares.tolist(), strict=True))


def counted(model: PlacementModel, made: ClusterSnapshot, index: int) -> Placed:
    """Count an eviction of this pod and the landing of its replacement."""
    pod = made.pod(index)
    landing = model.landings(pod)
    assert isinstance(landing, Landing)
    return model.commit(pod, model.winners(pod, landing))


def fits(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> set[str]:
    """Where the replacement of the first pod fits."""
    model, made = model_of(nodes, pods, **fields)
    mask = model.feasible(made.pod(0))
    assert isinstance(mask, np.ndarray)
    return {name for name, ok in zip(made.nodes.names, mask, strict=True) if ok}


def refused(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> Reason:
    model, made = model_of(nodes, pods, **fields)
    refusal = model.landings(made.pod(0))
    assert isinstance(refusal, Refusal)
    return refusal.code
