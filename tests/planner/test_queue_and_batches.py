"""Parts of a plan, each by itself: the order of the findings, and of the candidates of one batch."""

from itertools import pairwise

import pytest

from rebalancer.model.decisions.plan import Goal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner import Choice
from rebalancer.planner.plan.batches import Batches
from rebalancer.planner.plan.emptying import NodeDrainer
from rebalancer.planner.plan.moves import MoveMaker
from rebalancer.planner.plan.plan_input import never
from rebalancer.planner.plan.queue import MAX_MISSES, JobQueue
from rebalancer.planner.plan.room import RoomMaker
from rebalancer.planner.plan.screening import Screening
from rebalancer.planner.plan.script import Script
from rebalancer.planner.plan.state import PlanState
from rebalancer.planner.plan.waiting import Waiting
from tests.builders import a_node
from tests.planner.builders.findings import Scene, scene
from tests.planner.builders.plans import cold, heavy, single

SIZES = {"n1": (1_600.0, 1_500.0), "n2": (3_000.0, 300.0)}
"""Node -> CPU of its pods: one of them is over its target by 3,000 millicores in two pods, the other in one."""


def two_hot_nodes() -> Scene:
    pods = [single(f"{node}-{at}", node, used=used) for node, sizes in SIZES.items() for at, used in enumerate(sizes)]
    return scene([*(a_node(name, used=13_400.0) for name in SIZES), cold()], [*pods, heavy("n1"), heavy("n2")])


def queue_of(one: Scene, choice: Choice) -> tuple[PlanState, JobQueue]:
    state = one.state(*(one.finding(name, f"{name}-0", f"{name}-1", goal=Goal.COOL) for name in SIZES), cools=True)
    queue = JobQueue(state, choice)
    queue.begin([one.job(state, at) for at in range(2)])
    return state, queue


def names_in_turn(queue: JobQueue) -> list[str]:
    """The candidates, each refused when its turn comes."""
    out = []
    while (job := queue.next_job()) is not None:
        out.append(job.left[0].name)
        job.left, job.sorted, job.misses = job.left[1:], False, job.misses + 1
    return out


def test_of_all_nodes_the_largest_candidate_comes_first() -> None:
    assert names_in_turn(queue_of(two_hot_nodes(), Choice())[1]) == ["n2-0", "n1-0", "n1-1", "n2-1"]


def test_by_node_the_first_is_finished_before_the_next_begins() -> None:
    assert names_in_turn(queue_of(two_hot_nodes(), Choice(by_node=True))[1]) == ["n1-0", "n1-1", "n2-0", "n2-1"]


def test_noise_changes_the_order_the_same_way_for_the_same_seed() -> None:
    one = two_hot_nodes()
    orders = [names_in_turn(queue_of(one, Choice(noise=seed))[1]) for seed in (*range(1, 20), *range(1, 20))]
    assert orders[:19] == orders[19:]
    assert any(first != second for first, second in pairwise(orders))


def test_after_many_candidates_without_a_landing_the_other_node_comes_first() -> None:
    _, queue = queue_of(two_hot_nodes(), Choice())
    queue.batch[1].misses = MAX_MISSES
    assert names_in_turn(queue)[:2] == ["n1-0", "n1-1"]


def test_a_job_whose_goal_is_reached_ends() -> None:
    one = two_hot_nodes()
    state = one.state(one.finding("n1", "n1-0", "n1-1", wanted=1))
    queue = JobQueue(state, Choice())
    queue.begin([one.job(state, moved=1)])
    assert queue.next_job() is None
    assert [each.code for each in state.refused.values()] == [Reason.ENOUGH_EVICTED] * 2


def test_the_job_of_a_pod_is_that_of_its_node() -> None:
    one = two_hot_nodes()
    _, queue = queue_of(one, Choice())
    assert queue.job_of(one.snapshot.pods.names.index("n2-1")) is queue.batch[1]
    assert queue.job_of(one.snapshot.pods.names.index("agent-n1")) is None


# ---- batches


def batches_of(one: Scene, state: PlanState) -> Batches:
    screening, queue = Screening(state, goes_on=False), JobQueue(state, Choice())
    waiting = Waiting(state, patience=0.0, waited=0)
    script = Script(Choice(), state, queue=queue, waiting=waiting, screening=screening)
    return Batches(
        state,
        drainer=NodeDrainer(state, MoveMaker(state), simulation=False, out_of_time=never),
        rooms=RoomMaker(state, MoveMaker(state), script=script, steering=None, out_of_time=never),
        screening=screening,
        script=script,
        share_of_time=lambda parts: never,
    )


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [({"goal": Goal.COOL}, [2, 0]), ({"goal": Goal.COOL, "in_order": True}, [1, 1, 0]), ({}, [1, 1, 0])],
    ids=["cooled", "cooled in order", "removed"],
)
def test_only_nodes_that_are_cooled_in_any_order_are_planned_together(
    fields: dict[str, object], sizes: list[int]
) -> None:
    one = two_hot_nodes()
    batches = batches_of(one, one.state(*(one.finding(name, **fields) for name in SIZES), cools=True))
    assert [len(batches.next_batch()) for _ in sizes] == sizes
    assert batches.most_together == max(sizes)


def test_the_fewest_evictions_are_counted_where_nodes_are_cooled() -> None:
    one = two_hot_nodes()
    batches = batches_of(one, one.state(*(one.finding(name, goal=Goal.COOL) for name in SIZES), cools=True))
    batches.next_batch()
    assert batches.fewest == 2 + 1


def test_once_it_is_stopped_all_candidates_of_later_batches_are_refused() -> None:
    one = two_hot_nodes()
    state = one.state(*(one.finding(name, f"{name}-0") for name in SIZES))
    batches = batches_of(one, state)
    batches.next_batch()
    batches.stopped = Refusal.of(Reason.STOPPING)
    assert batches.next_batch() == []
    assert {one.snapshot.pods.names[pod]: each.code for pod, each in state.refused.items()} == {"n2-0": Reason.STOPPING}


# ---- screening


@pytest.mark.parametrize(("goes_on", "skipped", "stay"), [(False, [], True), (True, [], False), (False, [1], False)])
def test_a_node_that_would_stay_over_high_keeps_all_where_that_has_not_been_checked_before(
    goes_on: bool, skipped: list[int], stay: bool
) -> None:
    pods = [heavy("hot"), *(single(f"s{at}", used=400.0) for at in range(3)), single("idle", used=0.0)]
    one = scene([a_node("hot", used=13_400.0), cold()], pods)
    state = one.state(one.finding("hot", goal=Goal.COOL), cools=True)
    job = one.job(state, skipped=skipped)
    job.left = []
    Screening(state, goes_on=goes_on).screen(job, job.finding.candidates.tolist())
    assert [pod.name for pod in job.left] == ([] if stay else ["s0", "s1", "s2"])
    names = one.snapshot.pods.names
    assert {names[pod]: each.code for pod, each in state.refused.items()} == {
        "agent-hot": Reason.DAEMONSET_POD,
        "idle": Reason.NO_RELIEF,
        **({f"s{at}": Reason.HIGH_UNREACHABLE for at in range(3)} if stay else {}),
    }
