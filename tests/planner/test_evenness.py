"""Groups that are to be spread evenly: no move but one that evens them out, wherever it may land."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.plan import Evenness, Finding
from rebalancer.placement.draws.draws import DRAWS
from rebalancer.placement.landing.landing import Placed
from rebalancer.planner.landings.evenness import EvenGroups
from rebalancer.strategies import Findings
from tests.builders import APod, a_node, replicas
from tests.planner.builders.findings import Plan, Scene, scene
from tests.planner.builders.plans import heavy, single


def groups(count: list[float], domain: list[int], skew: int = 1) -> tuple[EvenGroups, Evenness, Scene]:
    """Nodes n0, n1, ... with these domains; pod p0 of n0 is known to be in the group."""
    one = scene([a_node(f"n{at}") for at in range(len(domain))], [single("p0", "n0")])
    even = Evenness(domain=np.array(domain, dtype=np.int32), count=np.array(count), skew=skew)
    found = [Findings(findings=(one.finding("n0", "p0", rule={"even": even}),))]
    return EvenGroups(found, DRAWS), even, one


def to(*nodes: int) -> Placed:
    """To one node for sure, or to these in turn from draw to draw."""
    winners = np.resize(np.array(nodes), DRAWS)
    return Placed(nodes[0] if len(nodes) == 1 else -1, winners, np.arange(DRAWS if len(nodes) > 1 else 0))


def in_draws(even: EvenGroups, group: Evenness, node: int, *nodes: int) -> list[list[int]]:
    """For each of the first draws, one for each of `nodes`, where a pod from `node` would make the group more even."""
    everywhere = np.arange(len(group.domain))
    draws = range(len(nodes))
    better = [even.better_in_draws(group, node, np.full(len(everywhere), draw), everywhere) for draw in draws]
    return [np.flatnonzero(each).tolist() for each in better]


@pytest.mark.parametrize(
    ("count", "better"),
    [
        ([3, 0, 1, 2], [1, 2]),
        ([2, 0, 1, 3], [1]),
        ([1, 0, 0, 0], []),
        ([5, 5, 5, 4], []),
    ],
)
def test_a_landing_holds_at_least_two_fewer_than_what_is_left(count: list[float], better: list[int]) -> None:
    even, group, _ = groups(count, [0, 1, 2, 3, -1])
    assert np.flatnonzero(even.better(group, 0)).tolist() == better


def test_a_pod_outside_all_domains_may_go_into_any() -> None:
    even, group, _ = groups([9, 9], [-1, 0, 1, -1])
    assert np.flatnonzero(even.better(group, 0)).tolist() == [1, 2]
    assert even.enough(group, 0) is None


@pytest.mark.parametrize(("count", "skew", "enough"), [([3, 1], 1, False), ([2, 1], 1, True), ([3, 1], 2, True)])
def test_a_domain_within_the_skew_of_the_emptiest_is_left_alone(count: list[float], skew: int, enough: bool) -> None:
    even, group, _ = groups(count, [0, 1], skew)
    refusal = even.enough(group, 0)
    assert (refusal is not None) is enough
    if refusal is not None:
        assert refusal.message.endswith(f": {count[0]:.0f} here, {count[1]:.0f} where there are fewest")


def test_a_sure_move_counts_on_both_sides_and_what_was_given_never_changes() -> None:
    even, group, _ = groups([4, 0, 1], [0, 1, 2])
    even.count(0, 0, to(1))
    assert np.flatnonzero(even.better(group, 0)).tolist() == [1, 2]
    even.count(0, 0, to(1))
    assert even.enough(group, 0) is not None  # 2, 2, 1
    assert group.count.tolist() == [4, 0, 1]


def test_what_a_domain_has_lost_makes_it_a_landing_for_others() -> None:
    even, group, _ = groups([3, 0, 4], [0, 1, 2])
    assert np.flatnonzero(even.better(group, 2)).tolist() == [1]
    even.count(0, 0, to(1))
    assert np.flatnonzero(even.better(group, 2)).tolist() == [0, 1]


def test_a_landing_that_is_not_sure_counts_in_the_draws_that_have_it() -> None:
    even, group, _ = groups([3, 0, 0], [0, 1, 2])
    even.count(0, 0, to(1, 2))
    # 2 are left: in each draw the next goes where the first didn't
    assert in_draws(even, group, 0, 1, 2) == [[2], [1]]
    # of single nodes, those are meant in draws without a landing there
    assert np.flatnonzero(even.better(group, 0)).tolist() == [1, 2]
    even.count(0, 0, to(2, 1))
    assert in_draws(even, group, 0, 1, 2) == [[], []]  # 1, 1, 1
    assert even.enough(group, 0) is not None


def test_two_that_may_be_together_leave_the_other_free() -> None:
    even, group, _ = groups([4, 0, 0], [0, 1, 2])
    even.count(0, 0, to(1, 2))
    even.count(0, 0, to(1, 1))
    # 2, 2, 0 and 2, 1, 1
    assert in_draws(even, group, 0, 1, 2) == [[2], []]


def test_a_group_is_balanced_when_it_is_in_more_than_a_hundredth_of_the_draws() -> None:
    for in_vain, enough in ((1, False), (2, True)):
        even, group, _ = groups([3, 0, 1], [0, 1, 2])
        even.count(0, 0, to(1))
        assert even.enough(group, 0) is not None  # 2, 1, 1
        even, group, _ = groups([3, 0, 1], [0, 1, 2])
        nodes = np.full(DRAWS, 2)
        nodes[:in_vain] = 1
        even.count(0, 0, Placed(-1, nodes, np.arange(DRAWS)))
        assert (even.enough(group, 0) is not None) is enough  # 2, 0, 2 in most


def test_a_domain_that_is_reached_on_any_of_its_nodes_is_surely_reached() -> None:
    even, group, _ = groups([4, 0, 2], [0, 1, 1, 2])
    even.count(0, 0, to(1, 2))
    assert np.flatnonzero(even.better(group, 0)).tolist() == [1, 2]
    assert in_draws(even, group, 0, 1, 2) == [[1, 2], [1, 2]]
    even.count(0, 0, to(1, 2, 2))
    assert not even.better(group, 0).any()  # 2, 2, 2
    assert in_draws(even, group, 0, 1, 2) == [[], []]


def test_a_domain_of_several_nodes_that_a_landing_may_have_reached_is_no_better_where_it_may_have() -> None:
    even, group, _ = groups([3, 0, 0], [0, 1, 1, 2])
    even.count(0, 0, to(1, 3))
    # another node of the domain may have it without a landing there
    assert np.flatnonzero(even.better(group, 0)).tolist() == [3]
    assert in_draws(even, group, 0, 1, 3) == [[3], [1, 2]]


def test_a_pod_from_outside_all_domains_may_go_into_any_in_every_draw() -> None:
    even, group, _ = groups([9, 9], [-1, 0, 1, -1])
    even.count(0, 0, to(1, 3))
    assert in_draws(even, group, 0, 1, 2) == [[1, 2], [1, 2]]


def test_pods_of_no_group_count_nowhere() -> None:
    even, group, _ = groups([3, 1], [0, 1])
    even.count(17, 0, to(1))
    assert even.better(group, 0).tolist() == [False, True]


def test_what_is_tried_leaves_no_trace() -> None:
    even, group, _ = groups([3, 1], [0, 1])
    with even.tentatively():
        even.count(0, 0, to(0, 1))
        even.count(0, 0, to(1))
        assert not even.better(group, 0).any()
        assert in_draws(even, group, 0, 0, 1) != [[1], [1]]
    assert in_draws(even, group, 0, 0, 1) == [[1], [1]]
    assert even.better(group, 0).tolist() == [False, True]


# ---- in plans


def crowd(counts: dict[str, int], *, cpu: float = 500.0) -> tuple[Scene, list[Finding]]:
    """A service with so many pods on each node, and a finding for each node that has any."""
    pods: list[APod] = [*replicas("web", counts, used=100.0, cpu=cpu, memory=1.0)]
    one = scene([a_node(name, used=2_000.0) for name in counts], pods)
    even = one.even({name: at for at, name in enumerate(counts)}, list(counts.values()))
    order = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    return one, [one.finding(name, rule={"even": even}) for name in order]


def test_duplicates_spread_over_the_nodes_that_have_none() -> None:
    """However small they are: the scheduler keeps pods of one owner apart."""
    for cpu in (500.0, 1.0):
        one, findings = crowd({"a": 3, "b": 0, "c": 0}, cpu=cpu)
        plan = one.plan(*findings)
        assert [plan.landings[name] for name in ("web-0", "web-1")] == [{"b", "c"}, {"b", "c"}]
        assert plan.codes == {"web-2": "AlreadyBalanced"}


def test_of_pods_that_nothing_keeps_apart_each_waits_for_the_one_before() -> None:
    """So small that the second may be put where the first is."""
    names = ("a", "b", "c")
    pods = [single(f"p{at}", "a", used=100.0, cpu=1.0, memory=1.0) for at in range(3)]
    one = scene([a_node(name, used=2_000.0) for name in names], [*pods, heavy("a"), heavy("b", 10.0), heavy("c", 10.0)])
    even = one.even({name: at for at, name in enumerate(names)}, [3, 0, 0])
    plan = one.plan(one.finding("a", "p0", "p1", "p2", rule={"even": even}))
    assert plan.landings == {"p0": {"b", "c"}}
    assert plan.refused.keys() == {"p1", "p2"}
    assert set(plan.codes.values()) <= {"TargetNodeNotBetter", "AlreadyBalanced"}


def test_findings_of_one_group_share_its_counts() -> None:
    one, findings = crowd({"a": 3, "b": 3, "c": 0})
    plan = one.plan(*findings)
    assert plan.landings == {"web-0": {"c"}, "web-3": {"c"}}
    assert set(plan.codes.values()) == {"AlreadyBalanced"}


def _worlds() -> st.SearchStrategy[tuple[list[int], list[int], int]]:
    """(pods on each node, domain of each node, heavy requests there)."""
    nodes = st.integers(2, 6)
    return nodes.flatmap(
        lambda count: st.tuples(
            st.lists(st.integers(0, 4), min_size=count, max_size=count),
            st.lists(st.integers(-1, 2), min_size=count, max_size=count),
            st.integers(0, 2**16),
        )
    )


@seed(8)
@settings(max_examples=60, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=_worlds())
def test_every_outcome_of_every_move_is_more_even_than_before(world: tuple[list[int], list[int], int]) -> None:
    there, domain, dice = world
    names = [f"n{at}" for at in range(len(there))]
    counts = dict(zip(names, there, strict=True))
    agents = [heavy(name, 1_000.0 * (dice >> (2 * at) & 3)) for at, name in enumerate(names)]
    pods = [*replicas("web", counts, used=100.0, cpu=100.0), *agents]
    one = scene([a_node(name, used=2_000.0) for name in names], pods)
    in_domain = [sum(n for n, d in zip(there, domain, strict=True) if d == each) for each in range(3)]
    even = one.even(dict(zip(names, domain, strict=True)), in_domain)
    findings = [
        one.finding(name, *(pod.name for pod in pods if pod.node == name and pod.owner == "web"), rule={"even": even})
        for name in names
        if counts[name] and domain[names.index(name)] >= 0
    ]
    _follow(one.plan(*findings), domain, in_domain)


def _follow(plan: Plan, domain: list[int], in_domain: list[int]) -> None:
    """All courses that the plan may take, as long as there aren't too many: a sum of squares only ever falls."""
    courses = [tuple(float(each) for each in in_domain)]
    for move in plan.moves:
        after = set()
        for course in courses:
            for each in move.target_nodes:
                new = list(course)
                new[domain[move.in_plan.node_index]] -= 1
                new[domain[plan.snapshot.node_index[each.node]]] += 1
                after.add(tuple(new))
                if len(move.target_nodes) == 1 or len(plan.moves) == 1:
                    assert sum(n * n for n in new) < sum(n * n for n in course)
        assert all(domain[plan.snapshot.node_index[each.node]] >= 0 for each in move.target_nodes)
        # the worst course is no less even than the worst before; a move that must be in vain would be
        worst = max(sum(n * n for n in each) for each in after)
        assert worst < max(sum(n * n for n in each) for each in courses)
        courses = sorted(after)[:500]
