"""Parts of a plan, each by itself: candidates that wait, and the simulated plan that is repeated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.decisions.plan import Goal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner import Choice
from rebalancer.planner.plan.moves import MoveMaker, Refused
from rebalancer.planner.plan.plan_input import PlannedMove
from rebalancer.planner.plan.queue import JobQueue
from rebalancer.planner.plan.screening import Screening
from rebalancer.planner.plan.script import Script
from rebalancer.planner.plan.state import PlanState
from rebalancer.planner.plan.waiting import MAX_WAITS, Waiting
from tests.builders import a_budget, a_node, changed, replicas
from tests.planner.builders.findings import Scene, scene
from tests.planner.builders.plans import cold, heavy, single

USED_UP = Refusal.of(Reason.BUDGET_EXHAUSTED)


def a_hot_node(allowed: int = 1) -> Scene:
    """3,000 millicores over its target: two pods of `web` with a budget, and smaller ones."""
    pods = [
        heavy("hot"),
        *replicas("web", {"hot": 2}, used=1_600.0),
        *(single(f"s{at}", used=700.0) for at in range(4)),
    ]
    return scene([a_node("hot", used=13_400.0), cold()], pods, budgets=[a_budget("pdb", "web", allowed)])


def state_of(one: Scene, **fields: Any) -> PlanState:
    names = ("web-0", "web-1", "s0", "s1", "s2", "s3")
    return one.state(one.finding("hot", *names, goal=Goal.COOL, **fields), cools=True)


@pytest.mark.parametrize(
    ("patience", "waited", "fields", "allowed", "waits"),
    [
        (60.0, 0, {}, 1, True),
        (0.0, 0, {}, 1, False),
        (60.0, MAX_WAITS, {}, 1, False),
        (60.0, 0, {"urgent": True}, 1, False),
        (60.0, 0, {}, 0, False),
    ],
    ids=["passes", "no patience", "often enough", "urgent", "never any room"],
)
def test_a_budget_that_the_plan_has_used_up_is_waited_for(
    patience: float, waited: int, fields: dict[str, Any], allowed: int, waits: bool
) -> None:
    one = a_hot_node(allowed)
    state = state_of(one, **fields)
    job = one.job(state)
    waiting = Waiting(state, patience=patience, waited=waited)
    assert waiting.may_wait(job, job.left[0], Refused(USED_UP)) is waits


def test_urgent_nodes_do_not_wait_and_other_refusals_neither() -> None:
    one = a_hot_node()
    state = state_of(one)
    job, waiting = one.job(state), Waiting(state, patience=60.0, waited=0)
    assert not waiting.may_wait(job, job.left[0], Refused(Refusal.of(Reason.NO_NODE_WITH_HEADROOM)))
    state.input = replace(state.input, urgent=np.array([True, False]))
    assert not waiting.may_wait(job, job.left[0], Refused(USED_UP))


def test_what_saves_evictions_is_counted_on_and_comes_back_with_its_reason() -> None:
    one = a_hot_node()
    state = state_of(one)
    job, waiting = one.job(state), Waiting(state, patience=60.0, waited=0)
    large, small = job.left[0], job.left[2]
    job.left = job.left[1:2] + job.left[3:]
    for pod in (large, small):
        waiting.add(job, pod, USED_UP)
    assert (list(job.waiting), job.expected) == ([large.index, small.index], [large])
    waiting.jobs.append(job)
    assert waiting.refusals == [USED_UP] * 2
    assert waiting.resume() == [job]
    assert (job.waiting, job.expected, job.left[-2:]) == ({}, [], [large, small])
    assert waiting.reasons == dict.fromkeys([large.index, small.index], USED_UP.message)
    assert waiting.resume() == []


# ---- the script


def scripted(
    one: Scene, state: PlanState, *pods: str, known: dict[int, Refusal] | None = None
) -> tuple[Script, JobQueue]:
    indices = [one.snapshot.pods.names.index(pod) for pod in pods]
    moves = [PlannedMove(pod=index, checked=None, taints={1: "Hot"}) for index in indices]
    queue, waiting = JobQueue(state, Choice()), Waiting(state, patience=0.0, waited=0)
    choice = Choice(script=moves, known=known or {})
    return Script(choice, state, queue=queue, waiting=waiting, screening=Screening(state, goes_on=False)), queue


def test_the_pods_of_the_script_come_first_and_in_its_order() -> None:
    one = a_hot_node()
    state = state_of(one)
    script, queue = scripted(one, state, "s3", "s1")
    assert script.next_job() is None  # another batch
    queue.begin([one.job(state)])
    for name in ("s3", "s1"):
        job = script.next_job()
        assert job is not None
        assert job.left[0].name == name
        assert script.move_of(job.left[0].index) is not None
        assert script.move_of(job.left[1].index) is None
        state.moved[job.left[0].index] = True
        job.drop(job.left[0].index)
    assert script.next_job() is None


def test_a_script_fails_with_a_pod_that_can_not_go_and_what_was_skipped_is_checked() -> None:
    one = a_hot_node()
    state = state_of(one)
    skipped = one.snapshot.pods.names.index("s2")
    script, queue = scripted(one, state, "s3", known={skipped: USED_UP})
    job = one.job(state, skipped=[skipped])
    job.left = [pod for pod in job.left if pod.name not in ("s2", "s3")]
    queue.begin([job])
    assert script.known == {skipped: USED_UP}
    assert script.next_job() is None
    assert (script.known, job.skipped, job.left[-1].name) == ({}, [], "s2")
    script.fail()
    assert len(job.left) == 5


# ---- the moves


def test_a_move_that_a_limit_refuses_is_told_from_one_that_its_budget_or_its_landing_refuses() -> None:
    one = a_hot_node(allowed=0)
    full = scene(one.nodes, one.pods, policy={"limits": {"perCycle": 0}})
    state, limited = state_of(one), state_of(full)
    web, small = one.job(state).left[0], one.job(state).left[2]
    by_budget, move = (MoveMaker(state).make(one.job(state), pod, None) for pod in (web, small))
    assert isinstance(by_budget, Refused)
    assert (by_budget.refusal.code, by_budget.limited) == (Reason.BUDGET_EXHAUSTED, None)
    assert not isinstance(move, Refused)
    assert (move.pod, move.target_node, move.target_pool) == ("s0", "cold", "general")
    assert move.reason == "hot is untidy; relieves the node of 4.4% cpu; price 2.05"
    by_limit = MoveMaker(limited).make(full.job(limited), small, None)
    assert isinstance(by_limit, Refused)
    assert by_limit.limited is not None
    assert (by_limit.refusal.code, by_limit.limited.pod) == (Reason.LIMIT_CYCLE, "s0")


def test_the_landing_of_a_repeated_move_is_not_looked_for_again() -> None:
    one = a_hot_node()
    state = state_of(one)
    job, first = one.job(state), MoveMaker(state)
    move = first.make(job, job.left[2], None)
    checked = first.checked[job.left[2].index]
    again = MoveMaker(state)
    repeated = PlannedMove(pod=job.left[2].index, checked=checked, taints={})
    assert again.make(job, job.left[2], repeated) == move
    assert (first.landings_checked, again.landings_checked) == (1, 0)


# ---- what is counted


def test_a_plan_that_takes_the_place_of_another_counts_its_moves_and_plans_no_refused_pod() -> None:
    one = a_hot_node()
    state = state_of(one)
    job, moves = one.job(state), MoveMaker(state)
    for at in (2, 3):
        moves.make(job, job.left[at], None)
        state.accept(job.left[at].index, moves.checked[job.left[at].index])
    state.refuse(job.left[4].index, USED_UP)
    undone, why = job.left[3].index, Refusal.of(Reason.SERVER_GONE)
    progress = state.progress({undone: why}, waited=1, patience=9.0)
    assert [each.pod for each in progress.moves] == [job.left[2].index]
    assert progress.refused == {job.left[4].index: USED_UP, undone: why}
    other = one.state(*state.input.found[0].findings, cools=True, progress=progress)
    assert np.flatnonzero(other.moved).tolist() == [job.left[2].index]
    assert other.refused == other.refused_before == progress.refused
    assert other.placed.keys() == {job.left[2].index}


def test_budgets_recover_with_replacements_and_are_closed_by_the_api_server() -> None:
    one = a_hot_node()
    state = state_of(one)
    web, other = one.job(state).left[:2]
    state.accept(web.index, None)
    assert state.budgets.refuses(other) is not None
    move = MoveMaker(state).leave(one.job(state), one.job(state).left[2])
    assert not isinstance(move, Refused)
    state.land([changed(move, pod_index=web.index)])
    assert state.budgets.refuses(other) is None
    state.refuse(other.index, Refusal.of(Reason.SERVER_BUDGET))
    assert state.budgets.refuses(other) is not None
