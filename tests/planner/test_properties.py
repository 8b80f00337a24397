"""What holds for every plan, on random hot clusters. Nothing may pass by planning nothing: see `in_every_plan`."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from rebalancer.model.reason import Reason
from rebalancer.placement.draws.draws import DRAWS
from tests.builders import APod
from tests.planner.oracles.futures import NOWHERE, Draw, futures
from tests.planner.oracles.second_account import Step, Story, tell
from tests.planner.scenarios.described_clusters import (
    LIMITS,
    World,
    budgets_of,
    holds_requests,
    is_hot,
    is_protected,
    lets_in,
)
from tests.planner.scenarios.random_clusters import hot_clusters

EXAMPLES = 80
LEAST_SHARE_WITH_A_MOVE = 0.2
"""About 0.35 is usual."""
SLACK = 1 + 1e-6
MOST_CHANCE = 0.01
MOST_ESTIMATED = MOST_CHANCE + 4 * (MOST_CHANCE / DRAWS) ** 0.5

BY_GUARDS = {
    Reason.MIRROR_POD, Reason.STATIC_POD, Reason.DAEMONSET_POD, Reason.TERMINATING, Reason.FINISHED, Reason.NOT_READY,
    Reason.BARE_POD, Reason.UNKNOWN_OWNER_KIND, Reason.JOB_POD, Reason.OURSELVES, Reason.OUR_PROMETHEUS,
    Reason.OUR_DATABASE, Reason.SYSTEM_CRITICAL, Reason.PRIORITY_THRESHOLD, Reason.HOST_PATH, Reason.LOCAL_STORAGE,
    Reason.LOCAL_VOLUME, Reason.PERSISTENT_VOLUME, Reason.TOO_YOUNG, Reason.MIN_REPLICAS, Reason.ROLLOUT_IN_PROGRESS,
    Reason.OWNER_NOT_HEALTHY, Reason.ANNOTATION_VETO, Reason.OPTED_OUT, Reason.INVALID_OPT_OUT, Reason.NOT_OPTED_IN,
    Reason.NAMESPACE_EXCLUDED, Reason.LABEL_EXCLUDED,
}  # fmt: skip
BY_BUDGETS = {Reason.BUDGET_EXHAUSTED, Reason.BUDGET_OUTDATED, Reason.SEVERAL_BUDGETS}


def in_every_plan(check: Callable[[World, Story], None], *, draw_seed: int, examples: int = EXAMPLES) -> None:
    """Run `check` over random clusters, and see to it that enough of them plan a move.

    They are the same ones as long as the code is: Hypothesis draws among its constants, too.
    """
    seen: Counter[bool] = Counter()

    @seed(draw_seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(world=hot_clusters())
    def run(world: World) -> None:
        story = tell(world)
        seen[bool(story.steps)] += 1
        check(world, story)

    run()
    assert seen.total() >= examples / 2
    assert seen[True] >= LEAST_SHARE_WITH_A_MOVE * seen.total(), f"{seen[True]} of {seen.total()} plans move a pod"


@pytest.mark.parametrize("shuffle", [1, 2])
def test_a_plan_is_the_same_in_whatever_order_the_cluster_is_listed(shuffle: int) -> None:
    def check(world: World, story: Story) -> None:
        if world.thresholds == "deviation":
            return  # see test_the_mean_of_a_pool_does_not_depend_on_the_order_of_its_nodes
        assert _without_budget_names(tell(world, random.Random(shuffle))) == _without_budget_names(story)

    in_every_plan(check, draw_seed=shuffle)


def _without_budget_names(story: Story) -> object:
    # see test_several_budgets_are_named_in_one_order_however_they_are_listed
    moves, rejected, refusals, findings = story.told
    return (
        moves,
        rejected,
        [(*each[:4], "" if each[3] is Reason.SEVERAL_BUDGETS else each[4]) for each in refusals],
        findings,
    )


def test_a_plan_never_takes_a_protected_pod() -> None:
    def check(world: World, story: Story) -> None:
        for name in [step.move.pod for step in story.steps] + story.rejected:
            assert not is_protected(world, world.pod[name])

    in_every_plan(check, draw_seed=11)


def test_guards_protect_just_those_pods_that_the_rules_protect() -> None:
    def check(world: World, story: Story) -> None:
        found = {story.snapshot.nodes.names[finding.node] for each in story.found for finding in each.findings}
        by_guards = {each.name for each in story.refusals if each.code in BY_GUARDS}
        # a guard before the last ones may refuse a pod for its landing
        other = {each.name for each in story.refusals if each.code is Reason.PLACEMENT_NOT_MODELLED}
        protected = {pod.name for pod in world.pods if pod.node in found and is_protected(world, pod)}
        assert by_guards <= protected <= by_guards | other

    in_every_plan(check, draw_seed=12)


def test_a_plan_never_leaves_a_budget_below_its_floor() -> None:
    def check(world: World, story: Story) -> None:
        taken: Counter[str] = Counter()
        for step in story.steps:
            budgets = budgets_of(world, world.pod[step.move.pod])
            assert len(budgets) <= 1
            for budget in budgets:
                assert budget.up_to_date
                taken[budget.name] += 1
        for budget in world.budgets:
            assert taken[budget.name] <= budget.disruptions_allowed

    in_every_plan(check, draw_seed=13)


def test_no_possible_landing_goes_over_its_target() -> None:
    def check(world: World, story: Story) -> None:
        for step in story.steps:
            for landing in step.landings:
                # certain, whatever was drawn before
                assert not is_hot(world, landing)
                assert world.loads[landing] + world.elsewhere[step.move.pod] <= world.marks[landing][1] * SLACK
        for step, draws in _futures(world, story):
            over: dict[str, float] = defaultdict(float)
            for draw in draws:
                node = story.names[draw.node]
                load = step.loads[node] + sum(_use(world, story, draw).values()) + world.elsewhere[step.move.pod]
                over[node] += draw.chance if load > world.marks[node][1] * SLACK else 0.0
            # after draws the chance is estimated from so many of them
            assert max(over.values()) <= (MOST_CHANCE if len(draws) == 1 or not draws[0].before else MOST_ESTIMATED)
            chances.append(max(over.values()))

    chances: list[float] = []
    in_every_plan(check, draw_seed=14)
    assert np.mean(chances) <= MOST_CHANCE / 2


def _futures(world: World, story: Story) -> Iterator[tuple[Step, list[Draw]]]:
    """Each move with all that may have happened up to its landing, as far as that can be followed."""
    cpu = np.array([world.elsewhere[name] for name in story.snapshot.pods.names])
    return zip(
        story.steps, futures(story.snapshot, [step.move.in_plan.pod_index for step in story.steps], cpu), strict=False
    )


def _use(world: World, story: Story, draw: Draw) -> dict[int, float]:
    """What landed on the same node before: place in the order -> millicores."""
    names = story.snapshot.pods.names
    return {at: world.elsewhere[names[pod]] for at, (pod, node) in enumerate(draw.before) if node == draw.node}


def test_the_planned_load_is_what_left_and_what_comes_by_its_shares() -> None:
    """Up to the sampling error of the draws, of which it is the mean: 4.5 standard errors of each landing."""

    def check(world: World, story: Story) -> None:
        loads, off = dict(world.loads), dict.fromkeys(world.loads, 1e-6)
        for step in story.steps:
            loads[step.move.node] -= world.usage[step.move.pod]
            for each in step.move.target_nodes:
                used, share = world.elsewhere[step.move.pod], min(each.probability, 1.0)
                loads[each.node] += share * used
                off[each.node] += 4.5 * math.sqrt(share * (1 - share) / DRAWS) * used
        for node, load in loads.items():
            assert story.planned[node] == pytest.approx(load, abs=off[node], nan_ok=True)
        assert np.nansum(list(story.planned.values())) == pytest.approx(np.nansum(list(loads.values())), rel=1e-3)

    in_every_plan(check, draw_seed=22)


def test_every_landing_lets_the_replacement_in() -> None:
    def check(world: World, story: Story) -> None:
        for step in story.steps:
            assert step.landings
            assert step.move.node not in step.landings
            assert sum(each.probability for each in step.move.target_nodes) == pytest.approx(1.0)
            for landing in step.landings:
                node = world.node[landing]
                assert node.ready
                assert lets_in(world.pod[step.move.pod], node)
                assert not any(taint.key.startswith("DeletionCandidate") for taint in node.taints)
        for number, (step, draws) in enumerate(_futures(world, story)):
            gone = {each.move.pod for each in story.steps[:number]}
            for draw in draws:
                assert draw.node not in (NOWHERE, step.move.in_plan.node_index)
                _check_fit(world, story, world.replacement(world.pod[step.move.pod]), draw, gone)

    in_every_plan(check, draw_seed=16)


def _check_fit(world: World, story: Story, pod: APod, draw: Draw, gone: set[str]) -> None:
    """The pod fits by requests, beside what is there and what landed there before."""
    node = world.node[story.names[draw.node]]
    there = [each for each in world.pods if each.node == node.name and holds_requests(each) and each.name not in gone]
    landed = [world.pod[story.snapshot.pods.names[each]] for each, at in draw.before if at == draw.node]
    there += [world.replacement(each) for each in landed]
    assert pod.cpu == 0 or sum(each.cpu for each in there) + pod.cpu <= node.cpu
    assert pod.memory == 0 or sum(each.memory for each in there) + pod.memory <= node.memory
    assert len(there) + 1 <= node.pods


def test_only_hot_nodes_are_relieved_and_only_until_they_reach_their_target() -> None:
    def check(world: World, story: Story) -> None:
        settling = {move.node for move in world.recent}
        for step in story.steps:
            source = step.move.node
            assert is_hot(world, source)
            assert source not in settling
            assert step.loads[source] > world.marks[source][1]

    in_every_plan(check, draw_seed=17)


def test_every_candidate_that_stays_has_a_reason_in_words() -> None:
    def check(world: World, story: Story) -> None:
        found = {story.snapshot.nodes.names[finding.node] for each in story.found for finding in each.findings}
        gone = {step.move.pod for step in story.steps}
        stays = {pod.name for pod in world.pods if pod.node in found} - gone
        assert {each.name for each in story.refusals} == stays
        assert len(story.refusals) == len(stays)
        for refusal in story.refusals:
            assert len(refusal.message) > 10
            assert refusal.node == world.pod[refusal.name].node

    in_every_plan(check, draw_seed=18)


def test_a_plan_never_exceeds_a_limit() -> None:
    def check(world: World, story: Story) -> None:
        limits = LIMITS[world.limits]
        assert len(story.steps) <= limits["perCycle"]
        assert all(
            n <= limits["node"]["evictions"][0]["max"] if limits["node"]["evictions"] else True
            for n in Counter(each.move.node for each in story.steps).values()
        )
        services = Counter((each.move.service.namespace, each.move.service.name) for each in story.steps)
        assert all(n <= limits["service"]["inFlight"] for n in services.values())

    in_every_plan(check, draw_seed=19)


def test_no_pod_is_moved_twice_and_what_the_server_refused_stays() -> None:
    def check(world: World, story: Story) -> None:
        moved = [step.move.uid for step in story.steps]
        assert len(moved) == len(set(moved))
        assert len(story.rejected) == len(set(story.rejected))
        assert not {step.move.pod for step in story.steps} & set(story.rejected)
        codes = {each.name: each.code for each in story.refusals}
        assert all(codes[name] is Reason.SERVER_BUDGET for name in story.rejected)

    in_every_plan(check, draw_seed=20)


def test_a_move_is_recorded_as_what_it_is() -> None:
    def check(world: World, story: Story) -> None:
        for step in story.steps:
            _check_record(world, step)

    in_every_plan(check, draw_seed=21)


def _check_record(world: World, step: Step) -> None:
    move, pod = step.move, world.pod[step.move.pod]
    assert (move.namespace, move.node) == (pod.namespace, pod.node)
    assert move.uid == f"uid-{pod.namespace}-{pod.name}"
    assert move.pool == world.node[pod.node].labels["pool"]
    assert str(move.service) == f"{pod.namespace}/{pod.owner}"
    assert move.cpu_millicores == pod.used
    assert "over high" in move.reason
    assert holds_requests(pod)
