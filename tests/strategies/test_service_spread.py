"""ServiceSpread: services whose days look alike, or that share a feature, are evened out over nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.peaks import ServiceDayProfiles
from rebalancer.strategies import Findings
from rebalancer.strategies.utilization.service_spread import find
from tests.builders import ANode, APod, a_node, a_pod, cluster, replicas, usage_of, view_of
from tests.strategies.builders.finding import names_of, strategy_policy

NAME = "ServiceSpread"

SLOTS = 288
AT = np.arange(SLOTS) / SLOTS * 2 * np.pi
MORNING = 1000 + 900 * np.sin(AT)
EVENING = 1000 - 900 * np.sin(AT)
FLAT = np.full(SLOTS, 1000.0)


def days_of(snapshot: ClusterSnapshot, usual: Mapping[str, Any], days: int = 8) -> ServiceDayProfiles:
    """`usual`: name of a service -> millicores of one pod over the day."""
    names = list(usual)
    row_of = [names.index(owner.name) if owner.name in names else -1 for owner in snapshot.owners]
    return ServiceDayProfiles(
        row_of=np.array(row_of, dtype=np.int32),
        usual=np.array([usual[name] for name in names], dtype=float).reshape(-1, SLOTS),
        days=np.full(len(names), days, dtype=np.int32),
    )


def found_in(
    nodes: Sequence[ANode], pods: Sequence[APod], usual: Mapping[str, Any] | None, days: int = 8, **args: Any
) -> tuple[Findings, ClusterSnapshot]:
    made = cluster(nodes, pods)
    known = None if usual is None else days_of(made, usual, days)
    return find(view_of(made, usage_of(made, nodes, pods), strategy_policy(NAME, args), days=known)), made


NODES = [a_node("a"), a_node("b")]
TWO = [a_pod("web-0", "a", owner="web"), a_pod("api-0", "a", owner="api")]


def test_two_services_that_peak_together_are_found_on_the_node_that_they_share() -> None:
    found, made = found_in(NODES, TWO, {"web": MORNING, "api": 2 * MORNING})
    (finding,) = found.findings
    assert (finding.node, finding.wanted) == (0, 1)
    assert sorted(names_of(finding, made)) == ["api-0", "web-0"]
    assert finding.reason == ("2 services that peak together (shop/api, shop/web) have 2 pods here, 1 would be even")
    assert finding.landing.even is not None
    assert finding.landing.even.count.tolist() == [2.0, 0.0]


@pytest.mark.parametrize(("web", "api"), [(MORNING, EVENING), (MORNING, FLAT), (FLAT, FLAT)])
def test_services_that_peak_at_other_times_or_never_may_share_a_node(web: Any, api: Any) -> None:
    assert found_in(NODES, TWO, {"web": web, "api": api})[0].findings == ()


def test_copies_of_one_service_and_what_is_even_already_are_left_alone() -> None:
    assert found_in(NODES, replicas("web", {"a": 4}), {"web": MORNING})[0].findings == ()
    pods = [*TWO, a_pod("web-1", "b", owner="web"), a_pod("api-1", "b", owner="api")]
    assert found_in(NODES, pods, {"web": MORNING, "api": MORNING})[0].findings == ()


def test_small_services_and_those_that_are_not_known_for_long_do_not_count() -> None:
    assert found_in(NODES, TWO, {"web": MORNING, "api": MORNING / 10})[0].findings == ()
    assert found_in(NODES, TWO, {"web": MORNING, "api": MORNING}, days=2)[0].findings == ()
    assert len(found_in(NODES, TWO, {"web": MORNING, "api": MORNING}, days=2, minDays=2)[0].findings) == 1


def test_without_any_history_nothing_is_found_and_noted() -> None:
    found, _ = found_in(NODES, TWO, None)
    assert found.findings == ()
    assert found.notes == ("services' usual days aren't known yet, so no services are spread by them",)


def test_a_stated_feature_needs_no_history() -> None:
    pods = [a_pod("x", "a", owner="web", labels={"io": "disk"}), a_pod("y", "a", owner="api", labels={"io": "disk"})]
    found, _ = found_in(NODES, pods, None, feature="io")
    assert "share io" in found.findings[0].reason
    pods[1].labels = {"io": "net"}
    assert found_in(NODES, pods, None, feature="io")[0].findings == ()


def test_nodes_that_take_nothing_do_not_count_as_places() -> None:
    for closed in (a_node("b", unschedulable=True), a_node("b", ready=False), a_node("b", labels={"pool": "none"})):
        assert found_in([a_node("a"), closed], TWO, {"web": MORNING, "api": MORNING})[0].findings == ()


def test_the_answer_does_not_depend_on_how_things_are_listed() -> None:
    pods = [*replicas("web", {"a": 3, "b": 1}), *replicas("api", {"a": 2}), *replicas("job", {"b": 3})]
    usual = {"web": MORNING, "api": MORNING, "job": EVENING}

    def listed(pods: Sequence[APod], nodes: Sequence[ANode]) -> list[tuple[str, list[str], int | None]]:
        found, made = found_in(nodes, pods, usual)
        return [(made.nodes.names[each.node], names_of(each, made), each.wanted) for each in found.findings]

    first = listed(pods, NODES)
    assert first == [("a", first[0][1], 2)]
    assert listed(pods[::-1], NODES[::-1]) == first


@given(
    st.lists(st.tuples(st.sampled_from(["web", "api", "job", "db"]), st.integers(0, 3)), min_size=1, max_size=24),
)
def test_no_node_is_asked_for_more_than_what_is_over_its_fair_share(placed: list[tuple[str, int]]) -> None:
    nodes = [a_node(f"n{index}") for index in range(4)]
    pods = [a_pod(f"p{index}", f"n{at}", owner=owner) for index, (owner, at) in enumerate(placed)]
    found, made = found_in(nodes, pods, {"web": MORNING, "api": MORNING, "job": EVENING, "db": FLAT})
    for finding in found.findings:
        owners = {made.owners[made.pods.owner[pod]].name for pod in finding.candidates.tolist()}
        assert owners == {"web", "api"}
        assert finding.wanted is not None
        alike = sum(owner in ("web", "api") for owner, _ in placed)
        assert len(finding.candidates) - finding.wanted == -(-alike // 4)
