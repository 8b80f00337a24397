"""Our taints: put before the first eviction, and none left behind."""

from dataclasses import dataclass, field

import pytest

from rebalancer.cycle.soft_taints import SoftTaintController, our_taints
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import SOFT_TAINT
from tests.builders import a_node, cluster


@dataclass
class Nodes:
    """Nodes' taints of ours, as the API server has them."""

    there: dict[str, str] = field(default_factory=dict)
    stubborn: set[str] = field(default_factory=set)
    calls: list[tuple[str, str | None]] = field(default_factory=list)

    def granted(self) -> bool:
        return True

    def put(self, node: str, *, value: str) -> bool:
        self.calls.append((node, value))
        if node in self.stubborn:
            return False
        self.there[node] = value
        return True

    def take(self, node: str) -> bool:
        self.calls.append((node, None))
        if node in self.stubborn:
            return False
        self.there.pop(node, None)
        return True


def tainted(*nodes: str, added: str = "2027-01-15T08:00:00Z") -> list[object]:
    ours = Taint(key=SOFT_TAINT, value="hot", effect="PreferNoSchedule", time_added=added)
    return [a_node(name, taints=(ours,)) for name in nodes]


def test_just_the_wanted_nodes_carry_it() -> None:
    nodes = Nodes({"old": "hot", "kept": "hot"})
    steerer = SoftTaintController(taints=nodes)
    steerer.see(cluster(tainted("old", "kept"), []))  # type: ignore[arg-type]
    assert steerer.hold({"kept": "hot", "new": "no-room"}) == {"kept", "new"}
    assert nodes.there == {"kept": "hot", "new": "no-room"}
    assert ("kept", "hot") not in nodes.calls


def test_a_node_that_could_not_be_tainted_is_not_counted() -> None:
    steerer = SoftTaintController(taints=Nodes(stubborn={"b"}))
    assert steerer.hold({"a": "hot", "b": "hot"}) == {"a"}


def test_clearing_leaves_none_also_not_those_of_an_earlier_process() -> None:
    nodes = Nodes({"before": "hot"})
    steerer = SoftTaintController(taints=nodes)
    steerer.see(cluster(tainted("before"), []))  # type: ignore[arg-type]
    steerer.hold({"before": "hot", "now": "hot"})
    steerer.clear()
    assert nodes.there == {}
    assert steerer.held == {}


def test_what_could_not_be_removed_is_tried_again() -> None:
    nodes = Nodes({"a": "hot"}, stubborn={"a"})
    steerer = SoftTaintController(taints=nodes, held={"a": "hot"})
    steerer.clear()
    assert steerer.held == {"a": "hot"}
    nodes.stubborn.clear()
    steerer.clear()
    assert nodes.there == {}


def test_after_the_final_clearing_none_is_put() -> None:
    nodes = Nodes()
    steerer = SoftTaintController(taints=nodes)
    steerer.clear()
    assert steerer.hold({"a": "hot"}) == set()
    assert nodes.there == {}


def test_who_does_not_lead_any_more_puts_none() -> None:
    nodes, asked = Nodes(), iter([True, False])
    steerer = SoftTaintController(taints=nodes, may=lambda: next(asked))
    assert steerer.hold({"a": "hot", "b": "hot"}) == {"a"}
    assert nodes.there == {"a": "hot"}


def test_a_node_whose_patch_failed_is_uncertain_until_it_is_seen() -> None:
    steerer = SoftTaintController(taints=Nodes({"old": "hot"}, stubborn={"old", "new"}), held={"old": "hot"})
    steerer.hold({"new": "hot"})
    assert steerer.uncertain == {"old", "new"}
    steerer.see(cluster(tainted("old"), []))  # type: ignore[arg-type]
    assert steerer.uncertain == set()


def test_a_changed_reason_is_written() -> None:
    nodes = Nodes({"a": "hot"})
    steerer = SoftTaintController(taints=nodes, held={"a": "hot"})
    steerer.hold({"a": "no-room"})
    assert nodes.there == {"a": "no-room"}


@pytest.mark.parametrize(("added", "seconds"), [("1970-01-01T00:01:00Z", 60.0), ("", 0.0), ("yesterday", 0.0)])
def test_a_taint_that_does_not_say_when_counts_as_old(added: str, seconds: float) -> None:
    other = Taint(key="other", effect="PreferNoSchedule")
    made = cluster([*tainted("a", added=added), a_node("b", taints=(other,))], [])  # type: ignore[list-item]
    assert our_taints(made.nodes) == {"a": ("hot", seconds)}
