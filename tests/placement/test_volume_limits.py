"""CSI volume limits: a node with as many volumes as it can have attached takes no pod with another (issue 16, 10)."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Refusal
from rebalancer.placement.landing.model import PlacementModel
from tests.builders import APod, a_node, a_pod, cluster

DRIVER = "disk.example"


def with_disk(name: str, node: str, *claims: str) -> APod:
    """A pod with these claims; by default one of its own name."""
    volumes = [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims or (name,)]
    return a_pod(name, node, owner=name, template={"volumes": volumes})


def shop(*pods: APod, limits: tuple[float, ...] = (2.0, 2.0, np.inf)) -> ClusterSnapshot:
    """Nodes n1, n2 and n3 with these limits; all claims but `files` are of the driver."""
    claims = {
        ("shop", str(volume["persistentVolumeClaim"]["claimName"]))
        for pod in pods
        for volume in pod.template.get("volumes", ())
    }
    return cluster(
        [a_node(name) for name in ("n1", "n2", "n3")],
        pods,
        claim_drivers={claim: DRIVER for claim in claims if claim[1] != "files"},
        volume_limits={DRIVER: np.array(limits)},
    )


def targets(snapshot: ClusterSnapshot, pod: int = 0) -> list[str]:
    """Feasible nodes of its replacement."""
    feasible = PlacementModel(snapshot).feasible(snapshot.pod(pod))
    assert not isinstance(feasible, Refusal)
    return [name for name, fits in zip(snapshot.nodes.names, feasible.tolist(), strict=True) if fits]


def test_a_full_node_is_no_target_node() -> None:
    snapshot = shop(with_disk("db", "n1"), with_disk("a", "n2"), with_disk("b", "n2"))
    assert targets(snapshot) == ["n1", "n3"]
    assert targets(shop(with_disk("db", "n1"), with_disk("a", "n2"))) == ["n1", "n2", "n3"]


def test_each_of_a_pods_volumes_counts() -> None:
    assert targets(shop(with_disk("db", "n3", "data", "log"), with_disk("a", "n2"))) == ["n1", "n3"]


def test_volumes_of_other_drivers_and_of_none_do_not_count() -> None:
    full = (with_disk("a", "n2"), with_disk("b", "n2"))
    assert targets(shop(with_disk("web", "n1", "files"), *full)) == ["n1", "n2", "n3"]
    assert targets(shop(a_pod("web", "n1", owner="web"), *full)) == ["n1", "n2", "n3"]


def test_moves_of_the_plan_count() -> None:
    snapshot = shop(with_disk("db", "n3"), with_disk("a", "n3"), limits=(1.0, 0.0, 2.0))
    model = PlacementModel(snapshot, cordoned=np.array([False, False, True]))
    assert model.feasible(snapshot.pod(0)).tolist() == [True, False, False]  # type: ignore[union-attr]
    landing = model.landings(snapshot.pod(0))
    assert not isinstance(landing, Refusal)
    model.commit(snapshot.pod(0), model.winners(snapshot.pod(0), landing))
    assert model.feasible(snapshot.pod(1)).tolist() == [False, False, False]  # type: ignore[union-attr]


def test_the_explanation_names_the_filter() -> None:
    snapshot = shop(with_disk("db", "n1"), with_disk("a", "n2"), with_disk("b", "n2"))
    assert PlacementModel(snapshot).explain(snapshot.pod(0)).filtered[1] == (
        "NodeVolumeLimits",
        "node(s) exceed max volume count",
    )


@pytest.mark.parametrize(("minor", "expected"), [(36, ["n1", "n2", "n3"]), (37, ["n1", "n3"])])
def test_from_1_37_on_a_driver_can_keep_its_pods_off_nodes_without_it(minor: int, expected: list[str]) -> None:
    there = {DRIVER: np.array([True, False, True]), "other": np.zeros(3, dtype=bool)}
    snapshot = replace(shop(with_disk("db", "n1")), minor=minor, drivers_at=there)
    assert targets(snapshot) == expected
    files = replace(shop(with_disk("db", "n1", "files")), minor=minor, drivers_at=there)
    assert targets(files) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(("minor", "known"), [(36, True), (37, False)])
def test_from_1_37_on_landings_need_the_drivers(minor: int, known: bool) -> None:
    snapshot = replace(shop(with_disk("db", "n1"), with_disk("web", "n1", "files")), minor=minor, drivers_at=None)
    found = PlacementModel(snapshot).feasible(snapshot.pod(0))
    assert isinstance(found, Refusal) is not known
    assert not isinstance(PlacementModel(snapshot).feasible(snapshot.pod(1)), Refusal)
