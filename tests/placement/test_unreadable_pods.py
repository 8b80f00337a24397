"""A pod that can't be read holds all that its node has; it changes nothing on another node."""

from dataclasses import replace

import numpy as np

from rebalancer.model.cluster.pods import PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from tests.builders import APod, a_node, a_pod, cluster
from tests.placement.builders import mover

NODES = [a_node("home"), a_node("shared"), a_node("room")]


def made(odd: APod, *, readable: bool = False, **fields: float) -> ClusterSnapshot:
    """A pod that is to move, and one that can't be read."""
    snapshot = cluster(NODES, [mover(**fields), odd])
    return replace(snapshot, pods=replace(snapshot.pods, unreadable=np.array([False, not readable])))


def lands(snapshot: ClusterSnapshot) -> set[str]:
    landing = PlacementModel(snapshot).landings(snapshot.pod(0))
    assert isinstance(landing, Landing)
    return {snapshot.nodes.names[node] for node in landing.nodes}


def test_nothing_lands_beside_it_that_requests_something() -> None:
    odd = a_pod("odd", "shared", cpu=0.0, memory=0.0)
    assert lands(made(odd, readable=True)) == {"shared", "room"}
    assert lands(made(odd)) == {"room"}


def test_what_requests_nothing_still_fits() -> None:
    snapshot = made(a_pod("odd", "shared", cpu=0.0, memory=0.0), cpu=0.0, memory=0.0)
    feasible = PlacementModel(snapshot).feasible(snapshot.pod(0))
    assert isinstance(feasible, np.ndarray)
    assert feasible[snapshot.node_index["shared"]]


def test_one_that_is_finished_or_waits_holds_nothing() -> None:
    finished = a_pod("odd", "shared", cpu=0.0, memory=0.0, phase=SUCCEEDED)
    waits = a_pod("odd", cpu=0.0, memory=0.0, phase=PENDING, ready=False, gated=True)
    assert lands(made(finished)) == lands(made(waits)) == {"shared", "room"}
