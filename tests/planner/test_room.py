"""Room for pending pods: the fewest moves of one node, or none."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rebalancer.cli.output.explanations import pod_document
from rebalancer.model.cluster.steering import ROOM
from rebalancer.model.decisions.plan import Finding, Goal
from rebalancer.model.reason import Reason
from rebalancer.planner.candidates.sets import fewest_covering, smallest_sets
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.plan_input import Choice
from rebalancer.planner.plan.search import carry_out
from rebalancer.strategies import Findings
from tests.builders import ANode, APod, a_budget, a_node, some_limits
from tests.planner.builders.findings import Plan, Scene, scene
from tests.planner.builders.plans import carried, single
from tests.planner.test_explain import of_pod, scene_of
from tests.strategies.test_make_room import full, held, waiting

VETO = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
QUIET = settings(max_examples=12, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
NODES = [a_node("a"), a_node("spare")]
"""Of 16,000 millicores."""


def rooms(one: Scene, *pods: str, nodes: Sequence[str] = (), wanted: int | None = None) -> list[Finding]:
    """Findings for pending pods, on these nodes or on all."""
    out, columns = [], one.snapshot.pods
    for name in pods or ["big"]:
        index = columns.names.index(name)
        for node in nodes or [each.name for each in one.nodes]:
            finding = one.finding(node, goal=Goal.ROOM, makes_room=True, room_for=index, wanted=wanted)
            able = finding.candidates[columns.priority[finding.candidates] <= columns.priority[index]]
            out.append(replace(finding, candidates=able))
    return out


def made(nodes: Sequence[ANode], pods: Sequence[APod], *, steering: int | None = 2, **fields: Any) -> Plan:
    one = scene(nodes, pods, **fields)
    return one.plan(*rooms(one), steering=steering)


def fixed(node: str, *, left: float) -> APod:
    """A pod that may not leave its node, and leaves so much of it."""
    return single(f"{node}-stays", node, cpu=16_000.0 - left, used=10.0, template=VETO)


def test_the_pod_that_leaves_enough_goes_and_the_room_is_held() -> None:
    plan = made(NODES, [*full("a", 4_000.0, 2_500.0, 9_000.0), fixed("spare", left=4_000.0), waiting(cpu=4_400.0)])
    assert plan.pods == ["a-0"]
    assert plan.landings == {"a-0": {"spare"}}
    assert plan.budget is not None
    assert plan.budget.chosen == {0: ROOM}
    assert plan.codes["a-2"] == "EnoughEvicted"
    assert "big" not in plan.codes


def test_the_node_that_needs_the_fewest_moves_is_chosen() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("spare")]
    pods = [*full("a", *[1_000.0] * 15), *full("b", 2_000.0, 2_000.0), fixed("b", left=5_000.0)]
    pods += [fixed("spare", left=4_000.0), waiting(cpu=4_500.0)]
    plan = made(nodes, pods)
    assert plan.pods == ["b-0", "b-1"]
    assert plan.landings == {"b-0": {"spare"}, "b-1": {"spare"}}


def test_of_equal_sets_the_smallest_goes() -> None:
    pods = [*full("a", 2_500.0, 2_000.0, 1_000.0, 2_400.0), fixed("a", left=8_900.0), fixed("spare", left=2_800.0)]
    assert made(NODES, [*pods, waiting(cpu=2_900.0)]).pods == ["a-1"]


def test_a_pod_that_a_node_has_room_for_needs_none() -> None:
    refusal = made(NODES, [*full("a", 16_000.0), fixed("spare", left=4_000.0), waiting(cpu=3_900.0)]).refused["big"]
    assert (refusal.code, refusal.node) == (Reason.NO_ROOM_MADE, "")
    assert refusal.message == "no room is made for it: spare has room for it"


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([fixed("a", left=0.0), fixed("spare", left=4_000.0)], "a: shop/a-stays: an annotation forbids it"),
        ([*full("a", 4_600.0, 11_400.0), fixed("spare", left=4_000.0)], "a: shop/a-0: no node would take the repl"),
        ([*full("a", *[1_000.0] * 16), fixed("spare", left=4_000.0)], "a: it would take 5 moves, at most 4 are made"),
        ([*full("a", *[2_000.0] * 8), fixed("spare", left=3_900.0)], "a: shop/a-1: no node would take the repl"),
    ],
    ids=["protected", "no landing", "too many", "no landing for the second"],
)
def test_where_no_room_is_made_none_goes_and_the_pending_pod_has_the_reason(pods: list[APod], why: str) -> None:
    one = scene(NODES, [*pods, waiting(cpu=4_300.0)])
    plan = one.plan(*rooms(one, nodes=["a"], wanted=4), steering=2)
    assert plan.moves == []
    assert plan.budget is not None
    assert plan.budget.chosen == {}
    assert plan.codes["big"] == plan.codes[pods[0].name] == "NoRoomMade"
    assert plan.refused["big"].message.startswith(f"no room is made for it: {why}")


TWO = [*full("a", *[1_900.0] * 8), fixed("spare", left=3_900.0), waiting(cpu=4_500.0)]
"""800 millicores are left on a, so two go."""


def test_limits_and_budgets_count_for_the_whole_set() -> None:
    assert made(NODES, TWO).pods == ["a-0", "a-1"]
    assert made(NODES, TWO, policy={"limits": some_limits(cycle=1)}).moves == []
    assert made(NODES, TWO, policy={"limits": some_limits(node=1)}).moves == []
    web = [replace(pod, owner="web") if pod.node == "a" else pod for pod in TWO]
    assert len(made(NODES, web).moves) == 2
    assert made(NODES, web, policy={"limits": some_limits(service=1)}).moves == []
    assert len(made(NODES, web, budgets=[a_budget("pdb", "web", 2)]).moves) == 2
    refusal = made(NODES, web, budgets=[a_budget("pdb", "web", 1)]).refused["big"]
    assert "pdb allows 1 disruptions, 1 of them taken by this plan" in refusal.message


def test_another_pending_pod_that_would_take_the_room_bars_it() -> None:
    on_a = {"template": {"nodeSelector": {"kubernetes.io/hostname": "a"}}}
    small = waiting("small", cpu=3_950.0, age=200.0, **on_a)
    # it fits once both have left, and comes after the older one
    assert len(made(NODES, [*TWO, small]).moves) == 2
    assert made(NODES, [*TWO, replace(small, age=400.0)]).moves == []
    assert made(NODES, [*TWO, replace(small, priority=1)]).moves == []
    # it fits once the first has left
    plan = made(NODES, [*TWO, replace(small, cpu=2_500.0)])
    assert plan.moves == []
    assert "shop/small fits nowhere else" in plan.refused["big"].message


def test_the_room_of_one_pod_is_not_the_next_ones() -> None:
    nodes = [a_node("a"), a_node("spare")]
    pods = [*full("a", 3_000.0), fixed("a", left=4_000.0), fixed("spare", left=3_500.0)]
    pods += [waiting("one", cpu=4_000.0), waiting("two", cpu=4_000.0, age=200.0)]
    one = scene(nodes, pods)
    plan = one.plan(*rooms(one, "one", "two"), steering=3)
    assert plan.pods == ["a-0"]
    assert plan.codes["two"] == "NoRoomMade"
    assert "one" not in plan.codes


def test_room_that_is_held_for_a_pod_is_not_anothers() -> None:
    """The replacement of the pod that leaves a would land where the room of the first pending pod is."""
    nodes = [a_node("a"), a_node("held"), a_node("full")]
    pods = [*full("a", 3_000.0), fixed("a", left=4_000.0), fixed("held", left=4_000.0), *full("full", 16_000.0)]
    pods += [waiting("first", cpu=4_000.0), waiting("big", cpu=4_000.0 - 1.0, age=200.0)]
    one = scene(nodes, pods)
    first = one.snapshot.pods.names.index("first")

    def plan(**rooms_held: Any) -> Plan:
        findings = one.planner(*rooms(one, nodes=["a"])).state.input.found
        return Plan(one.planner(found=[replace(findings[0], **rooms_held)]), one.snapshot, None)

    assert plan(rooms={first: 1}).refused["big"].message.startswith("no room is made for it: a: shop/a-0")
    assert "held has room for it" in plan().refused["big"].message


def test_what_terminates_is_waited_for() -> None:
    pods = [*full("a", 4_000.0, 12_000.0), fixed("spare", left=4_000.0), *full("b", 16_000.0, terminating=True)]
    plan = made([*NODES, a_node("b")], [*pods, waiting(cpu=4_400.0)])
    assert plan.moves == []
    assert plan.refused["big"].message.endswith("b has room for it once its terminating pods are gone")


def test_the_room_needs_a_soft_taint_where_there_are_any() -> None:
    refusal = made(NODES, TWO, steering=0).refused["big"]
    assert "no more nodes may have the soft taint" in refusal.message
    assert refusal.setting == "softTaint.maxNodes"
    assert len(made(NODES, TWO, steering=None).moves) == 2


def a_simulation(one: Scene, taints: int = 2) -> Choice:
    """The choice that a simulated plan ends with."""
    none = np.zeros(len(one.nodes), dtype=np.bool_)
    budget = SoftTaintBudget(pool_of=np.zeros(len(one.nodes), dtype=np.int32), left=[taints], hot=none)
    return carry_out(one.planner(*rooms(one), steering=budget, soft_tainted=none), Choice()).followed


def test_the_plan_repeats_the_simulation() -> None:
    one = scene(NODES, TWO)
    out = carried(one.planner(*rooms(one), choice=a_simulation(one)))
    assert out.pods == ["a-0", "a-1"]
    assert out.taints == {"a": ROOM}
    none = scene(NODES, [*TWO[:-1], waiting(cpu=12_000.0)])
    planner = none.planner(*rooms(none), choice=a_simulation(none))
    assert carried(planner).pods == []
    assert {each.name: each.code for each in planner.outcome.refusals()}["big"] is Reason.NO_ROOM_MADE


@pytest.mark.parametrize("repeats", [True, False])
def test_after_a_refusal_others_make_the_room(repeats: bool) -> None:
    one = scene(NODES, TWO)
    planner = one.planner(*rooms(one), choice=a_simulation(one) if repeats else None)
    out = carried(planner, reject_at=1)
    assert (out.pods, out.rejected) == (["a-0", "a-2"], ["a-1"])


def test_after_a_refusal_nothing_else_goes_where_no_others_make_the_room() -> None:
    one = scene(NODES, [*full("a", 1_900.0, 1_900.0), fixed("a", left=4_500.0), *TWO[-2:]])
    planner = one.planner(*rooms(one), choice=a_simulation(one))
    out = carried(planner, reject_at=0)
    assert (out.pods, out.rejected) == ([], ["a-0"])
    assert planner.outcome.refused[one.snapshot.pods.names.index("big")].code is Reason.NO_ROOM_MADE


# ---- explanations


def explained(pods: Sequence[APod], nodes: Sequence[ANode] = NODES) -> str:
    strategies = [{"name": "MakeRoom", "args": {"maxMoves": 4}}]
    found = of_pod(scene_of(nodes, pods, policy={"strategies": strategies, "guards": {"minReplicas": 1}}), "big")
    assert pod_document(found)["room"] == found.room
    return found.room


def test_an_explanation_of_the_pending_pod_says_how_its_room_is_made_or_why_not() -> None:
    one = [*full("a", 4_000.0, 2_500.0, 9_000.0), fixed("spare", left=4_000.0)]
    assert explained([*one, waiting(cpu=4_400.0)]) == "made on a by 1 move: shop/a-0"
    assert explained([*one, waiting(cpu=4_600.0)]).startswith("no room is made for it: a: shop/a-")
    assert explained([*one, waiting(cpu=4_400.0, age=60.0)]) == ""
    pods = [fixed("a", left=4_000.0), fixed("spare", left=0.0), waiting(cpu=3_900.0)]
    assert explained(pods, [held(60.0), NODES[1]]) == "held on a"


# ---- properties


@dataclass(frozen=True, kw_only=True)
class Random:
    nodes: list[ANode]
    pods: list[APod]
    limits: dict[str, int]


def a_random(number: int) -> Random:
    """Full nodes with pods of all sizes and priorities, some protected, and up to three pending pods."""
    rng = random.Random(number)
    names = [f"n{at}" for at in range(rng.randint(3, 5))]
    pods = []
    for name in names:
        left, at = 16_000.0, 0
        while left > rng.choice([500.0, 1_000.0, 1_500.0]):
            cpu = min(rng.choice([500.0, 700.0, 900.0, 2_500.0]), left)
            template = VETO if rng.random() < 0.1 else {}
            pods.append(
                single(f"{name}-{at}", name, cpu=cpu, used=10.0, template=template, priority=rng.choice([0, 0, 0, 5]))
            )
            left, at = left - cpu, at + 1
    for at in range(rng.randint(1, 3)):
        cpu = rng.choice([1_600.0, 2_000.0, 2_400.0])
        pods.append(waiting(f"big-{at}", cpu=cpu, age=400.0 - at, priority=rng.choice([0, 0, 5])))
    limits = {"cycle": rng.choice([1, 3, 1000]), "node": rng.choice([2, 1000])}
    return Random(nodes=[a_node(name) for name in names], pods=pods, limits=limits)


def free_of(world: Random) -> dict[str, float]:
    free = {node.name: node.cpu for node in world.nodes}
    for pod in world.pods:
        if pod.node:
            free[pod.node] -= pod.cpu
    return free


def waits_of(world: Random) -> list[APod]:
    return sorted((pod for pod in world.pods if not pod.node), key=lambda pod: (-pod.priority, -pod.age))


def outcome_of(world: Random) -> tuple[Scene, Plan]:
    one = scene(world.nodes, world.pods, policy={"limits": some_limits(**world.limits)})
    return one, one.plan(*rooms(one, *(pod.name for pod in waits_of(world)), wanted=4), steering=len(world.nodes))


@seed(37)
@QUIET
@given(number=st.integers(0, 10**6))
def test_each_room_is_whole_and_every_moved_pod_has_a_place(number: int) -> None:
    """Counted by hand: who leaves, who is bound, who lands; nothing is ever overfull."""
    world = a_random(number)
    one, plan = outcome_of(world)
    by_name = {pod.name: pod for pod in world.pods}
    moves = {each.pod: each for each in plan.planner.state.planned}
    assert len(plan.moves) <= world.limits["cycle"]
    free = free_of(world)
    for pod in waits_of(world):
        mine = [
            move
            for move in plan.moves
            if moves[move.in_plan.pod_index].room_for == one.snapshot.pods.names.index(pod.name)
        ]
        if pod.name in plan.refused:
            assert mine == []
            continue
        if not mine:  # another one's moves leave room for it too
            continue
        (node,) = {move.node for move in mine}
        assert free[node] < pod.cpu
        for move in mine:
            moved = by_name[move.pod]
            assert moved.priority <= pod.priority
            assert moved.template == {}
            free[node] += moved.cpu
            (target,) = plan.landings[move.pod] if len(plan.landings[move.pod]) == 1 else (None,)
            assert node not in plan.landings[move.pod]
            if target is not None:
                free[target] -= moved.cpu
                assert free[target] >= 0
        # no move too many
        assert all(free[node] - by_name[move.pod].cpu < pod.cpu for move in mine)
        free[node] -= pod.cpu
        assert free[node] >= 0


@seed(38)
@QUIET
@given(number=st.integers(0, 10**6))
def test_what_was_tried_leaves_no_trace(number: int) -> None:
    """A plan of other findings is the same after rooms that could not be made."""
    world = a_random(number)
    one, plan = outcome_of(world)
    if plan.moves or len(plan.refused) == 0:
        return
    others = Findings(findings=(one.finding(world.nodes[0].name, rule={"elsewhere": True}),))
    vain = Findings(findings=tuple(rooms(one, *(pod.name for pod in waits_of(world)), wanted=4)))
    alone = one.plan(found=[others], steering=len(world.nodes))
    after = one.plan(found=[vain, others], steering=len(world.nodes))
    assert after.landings == alone.landings
    assert after.pods == alone.pods
    assert after.budget is not None
    assert alone.budget is not None
    assert after.budget.chosen == alone.budget.chosen


@seed(39)
@QUIET
@given(number=st.integers(0, 10**6))
def test_the_order_in_which_the_cluster_is_listed_changes_nothing(number: int) -> None:
    world = a_random(number)
    shuffled = replace(world, nodes=list(world.nodes), pods=list(world.pods))
    random.Random(number).shuffle(shuffled.pods)
    assert outcome_of(world)[1].landings == outcome_of(shuffled)[1].landings


def test_enough_of_these_pods_get_room_and_enough_do_not() -> None:
    seen: Counter[str] = Counter()
    for number in range(40):
        world = a_random(number)
        _, plan = outcome_of(world)
        seen.update("moved" if plan.moves else "stays" for _ in waits_of(world)[:1])
        seen["several"] += len(plan.moves) > 1
    assert min(seen["moved"], seen["stays"]) >= 12
    assert seen["several"] >= 3


@seed(40)
@QUIET
@given(number=st.integers(0, 10**6))
def test_the_sets_are_all_of_the_smallest_ones_in_order(number: int) -> None:
    rng = np.random.default_rng(number)
    count, most = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    sizes = rng.choice([0.0, 1.0, 2.0, 3.0], size=(count, 2))
    need = rng.choice([-1.0, 0.0, 1.0, 3.0, 5.0], size=2)
    prices = rng.choice([1.0, 2.0], size=count)
    alike = np.unique(sizes, axis=0, return_inverse=True)[1].reshape(-1)
    found = list(smallest_sets(need, sizes, alike=alike, prices=prices, most=most))

    def covers(chosen: Sequence[int]) -> bool:
        return bool((sizes[list(chosen)].sum(axis=0) >= need - 1e-9).all())

    every = [
        each
        for size in range(1, most + 1)
        for each in itertools.combinations(range(count), size)
        if covers(each) and (size == 1 or not any(covers([at for at in each if at != one]) for one in each))
    ]
    key = {each: (len(each), prices[list(each)].sum()) for each in every}
    assert {tuple(sorted(each)) for each in found} <= set(every)
    assert [key[tuple(sorted(each))] for each in found] == sorted(key[tuple(sorted(each))] for each in found)
    classes = {tuple(sorted(alike[list(each)].tolist())) for each in every}
    assert {tuple(sorted(alike[list(each)].tolist())) for each in found} == classes
    if found:
        assert key[tuple(sorted(found[0]))] == min(key.values())
        assert max(fewest_covering(need, sizes), 1) <= len(found[0])
