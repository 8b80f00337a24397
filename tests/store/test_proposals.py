"""Proposals in the database: kept, superseded, expired, and as they were."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan_file import PlannedEviction, PlannedTarget
from rebalancer.model.decisions.proposals import Proposal, ProposalState, ProposedPlan
from rebalancer.store import SqlProposals, SqlRecords
from rebalancer.store.proposals import ID_LENGTH, LETTERS
from tests.store.builders import SteppingClock


def a_move(number: int, *, targets: tuple[str, ...] = ("n2", "n3"), **fields: object) -> PlannedEviction:
    values = {
        "namespace": "shop",
        "pod": f"web-{number}",
        "uid": f"uid-{number}",
        "node": "n1",
        "pool": "a",
        "service": "shop/web",
        "strategy": "LowNodeUtilization",
        "reason": "hot",
        "detail": "",
        "cpu_millicores": 1000.0,
        "target_nodes": tuple(
            PlannedTarget(node=each, probability=0.5, cpu_share_planned=0.6, cpu_share_planned_p99=None)
            for each in targets
        ),
    }
    return PlannedEviction(**{**values, **fields})  # type: ignore[arg-type]


def a_plan(*numbers: int, **fields: object) -> ProposedPlan:
    values = {
        "pool": "a",
        "strategy": "LowNodeUtilization",
        "policy_hash": "sha256:1",
        "evictions": tuple(a_move(each) for each in numbers),
    }
    return ProposedPlan(**{**values, **fields})  # type: ignore[arg-type]


@pytest.fixture
def proposals(records: SqlRecords, clock: SteppingClock) -> SqlProposals:
    return records.proposals(clock=clock)


Propose = Callable[..., Proposal]


@pytest.fixture
def propose(proposals: SqlProposals) -> Propose:
    def made(plan: ProposedPlan, *, whole: bool = True, seconds: float = 600.0) -> Proposal:
        [found] = proposals.propose("c1", [(plan, whole)], valid_seconds=seconds)
        return found

    return made


def test_a_proposal_comes_back_as_it_was(proposals: SqlProposals, propose: Propose) -> None:
    mark = ThresholdOverride(
        node="n1", strategy="LowNodeUtilization", high=0.6, target=0.5, source="alert Hot", max_excess=0.2
    )
    plan = a_plan(
        1,
        evictions=(a_move(1, cpu_millicores=1.5, targets=()), a_move(2)),
        thresholds=(mark,),
        due={("n1", "cpu at its peak"): 1234.5},
    )
    made = propose(plan)
    assert made.plan == plan
    assert (made.state, made.cycle, len(made.id)) == (ProposalState.PROPOSED, "c1", ID_LENGTH)
    assert set(made.id) <= set(LETTERS)
    assert proposals.all() == [proposals.named(made.id)] == [made]
    assert proposals.named("nope") is None
    unknown = propose(a_plan(1, pool="b", evictions=(a_move(1, cpu_millicores=math.nan),)))
    found = proposals.named(unknown.id)
    assert found is not None
    assert math.isnan(found.plan.evictions[0].cpu_millicores)


@pytest.mark.parametrize(
    ("plan", "whole", "stays"),
    [
        (a_plan(2, 1), True, True),
        (a_plan(1), True, False),
        (a_plan(1), False, True),
        (a_plan(1, 3), False, False),
        (a_plan(1, 2, policy_hash="sha256:2"), True, False),
        (a_plan(1, 2, evictions=(a_move(1, node="n9"), a_move(2))), True, False),
        (a_plan(1, 2, evictions=(a_move(1, targets=("n3", "n2")), a_move(2))), True, True),
        (a_plan(1, 2, evictions=(a_move(1, targets=("n4", "n2")), a_move(2))), True, False),
    ],
)
def test_an_open_proposal_stays_while_it_shows_what_is_planned(
    plan: ProposedPlan, whole: bool, stays: bool, proposals: SqlProposals, propose: Propose
) -> None:
    first = propose(a_plan(1, 2))
    second = propose(plan, whole=whole)
    assert (second.id == first.id) == stays
    assert sum(each.state is ProposalState.PROPOSED for each in proposals.all()) == 1
    before = proposals.named(first.id)
    assert before is not None
    if stays:
        assert before == first
    else:
        assert before == replace(first, state=ProposalState.SUPERSEDED, reason=f"superseded by {second.id}")


def test_each_pool_strategy_and_cluster_has_its_own(
    proposals: SqlProposals, propose: Propose, records: SqlRecords, clock: SteppingClock
) -> None:
    propose(a_plan(1))
    propose(a_plan(2, pool="b"))
    propose(a_plan(3, strategy="PodLifeTime"))
    other = records.of("other").proposals(clock=clock)
    other.propose("c2", [(a_plan(4), True)], valid_seconds=60.0)
    assert {each.state for each in proposals.all()} == {ProposalState.PROPOSED}
    assert (len(proposals.all()), len(other.all())) == (3, 1)
    assert proposals.named(other.all()[0].id) is None


def test_one_that_expired_is_over_at_once_and_for_good(
    proposals: SqlProposals, propose: Propose, clock: SteppingClock
) -> None:
    first = propose(a_plan(1), seconds=60.0)
    clock.sleep(60.0)
    assert [each.state for each in proposals.all()] == [ProposalState.EXPIRED]
    second = propose(a_plan(1), seconds=60.0)
    assert second.id != first.id
    assert {each.id: each.state for each in proposals.all()} == {
        first.id: ProposalState.EXPIRED,
        second.id: ProposalState.PROPOSED,
    }
