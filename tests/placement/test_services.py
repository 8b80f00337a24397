"""Default spreading by Services: of pods whose owner kube-scheduler doesn't know nothing else decides."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine
from tests.builders import APod, a_node, a_pod, cluster

NODES = [a_node("a"), a_node("b"), a_node("c")]
WEB: Mapping[str, str] = {"app": "web"}


def a_member(name: str, node: str, *, kind: str = "CloneSet", labels: Mapping[str, str] = WEB, **more: Any) -> APod:
    return a_pod(name, node, owner="web", owner_kind=kind, labels=labels, cpu=0, memory=0, **more)


def points(made: ClusterSnapshot) -> list[float] | None:
    """Score of the first pod by node; None where the scheduler skips the plugin."""
    board = Board(made)
    found = Engine(board).verdict(board.kinds.of(0)).weighted.get("PodTopologySpread")
    return None if found is None else (found / 2).tolist()


def shop(*selectors: Mapping[str, str], kind: str = "CloneSet", others: Mapping[str, str] = WEB) -> ClusterSnapshot:
    """A new pod beside two of its owner's on node a, whose labels are `others`."""
    pods = [a_member("new", "", kind=kind), *(a_member(f"old-{at}", "a", kind=kind, labels=others) for at in range(2))]
    return cluster(NODES, pods, services={"shop": selectors, "mail": ({"app": "web"},)})


def test_pods_of_a_custom_owner_are_spread_by_their_service() -> None:
    assert points(shop(WEB)) == [40.0, 100.0, 100.0]


@pytest.mark.parametrize("selectors", [(), ({"app": "db"},), ({"app": "web", "tier": "front"},)])
def test_without_a_service_of_theirs_they_are_not_spread(selectors: tuple[Mapping[str, str], ...]) -> None:
    assert points(shop(*selectors)) is None


def test_selectors_of_several_services_are_one() -> None:
    both = {"app": "web", "tier": "front"}
    pods = [a_member("new", "", labels=both), a_member("one", "a", labels=both), a_member("two", "b", labels=WEB)]
    alone, together = ((WEB,), (WEB, {"tier": "front"}))
    assert points(cluster(NODES, pods, services={"shop": alone})) == [50.0, 50.0, 100.0]
    assert points(cluster(NODES, pods, services={"shop": together})) == [50.0, 100.0, 100.0]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_a_service_narrows_the_pods_of_an_owner_that_is_known(kind: str) -> None:
    """Pods of an older revision may lack the Service's labels."""
    assert points(shop(kind=kind)) == [40.0, 100.0, 100.0]
    assert points(shop(WEB, kind=kind)) == [40.0, 100.0, 100.0]
    assert points(shop(WEB, kind=kind, others={"app": "old"})) == [100.0, 100.0, 100.0]


def test_where_services_can_not_be_read_pods_that_they_spread_are_not_modelled() -> None:
    def why(pod: APod, profile: SchedulerProfile | None = None) -> str:
        board = Board(cluster(NODES, [pod], services=None))
        config = SchedulerConfig(profiles={profile.name: profile}) if profile else None
        refusal = Engine(board, config).knows(board.kinds.of(0))
        return refusal.message if refusal is not None else ""

    own = {"topologySpread": [{"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}]}
    assert "Services can't be read" in why(a_member("new", ""))
    assert why(a_member("new", "", kind="ReplicaSet")) == why(a_member("new", "", template=own)) == ""
    assert why(a_member("new", ""), SchedulerProfile(default_constraints=())) == ""
    assert why(a_member("new", ""), SchedulerProfile(weights={}, filters=frozenset())) == ""


def test_a_service_that_can_not_be_read_concerns_its_namespace() -> None:
    unread = Obstacle(kind="Service", namespace="shop", name="odd", cause="spec")
    pods = [a_member("new", ""), a_member("far", "", namespace="mail")]
    board = Board(replace(cluster(NODES, pods), obstacles=(unread,)))
    known = [Engine(board).knows(board.kinds.of(pod)) is None for pod in range(2)]
    assert known == [board.snapshot.namespaces[board.kinds.of(pod).namespace] == "mail" for pod in range(2)]


def test_services_decode_no_template_of_other_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service for each of 5,000 owners took 18 s when each looked at all kinds."""
    pods = [a_pod(f"p{at}", "a", owner=f"o{at}", labels={"app": f"a{at}"}) for at in range(20)]
    board = Board(cluster(NODES, pods, services={"shop": tuple({"app": f"a{at}"} for at in range(20))}))
    engine, looked = Engine(board), list[int]()
    of = type(board.kinds).template_of
    monkeypatch.setattr(
        type(board.kinds), "template_of", lambda self, kind: looked.append(kind.owner) or of(self, kind)
    )
    for pod in range(20):
        looked.clear()
        engine.rules(board.kinds.of(pod))
        assert set(looked) == {board.kinds.of(pod).owner}


def test_services_with_a_common_label_are_found_by_the_other_one() -> None:
    each = tuple({"app": "web", "pod": f"p{at}"} for at in range(50))
    snapshot = cluster(NODES, [], services={"shop": each})
    assert snapshot.service_labels("shop", {"app": "web", "pod": "p7"}) == {"app": "web", "pod": "p7"}
    assert max(map(len, snapshot._services_near.values())) == 1
