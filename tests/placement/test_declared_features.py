"""NodeDeclaredFeatures: a pod that needs a feature fits only on nodes that declare it."""

from rebalancer.model.cluster.scheduler import FILTERS, SchedulerConfig, SchedulerProfile
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine, Verdict
from tests.builders import a_node, cluster
from tests.placement.builders import fits, mover

RESTARTS = "RestartAllContainersOnContainerExits"
NODES = [a_node("home"), a_node("new", declared_features=("Another", RESTARTS)), a_node("old")]


def verdict(profile: SchedulerProfile) -> Verdict:
    board = Board(cluster(NODES, [mover(template={"requiredFeatures": [RESTARTS]})]))
    return Engine(board, SchedulerConfig(profiles={profile.name: profile})).verdict(board.kinds.of(0))


def test_only_nodes_that_declare_every_feature_are_feasible() -> None:
    assert fits(NODES, [mover(template={"requiredFeatures": [RESTARTS]})]) == {"new"}
    assert fits(NODES, [mover(template={"requiredFeatures": [RESTARTS, "Third"]})]) == set()
    assert fits(NODES, [mover()]) == {"home", "new", "old"}


def test_the_filter_is_named_and_can_be_off() -> None:
    why = ("NodeDeclaredFeatures", "node(s) didn't match Pod's required features")
    assert verdict(SchedulerProfile()).filtered == (why, None, why)
    off = SchedulerProfile(filters=frozenset(FILTERS) - {"NodeDeclaredFeatures"})
    assert verdict(off).filtered == (None, None, None)
