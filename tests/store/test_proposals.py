"""Proposals in the database: kept, superseded, expired, and as they were."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan_file import PlannedEviction, PlannedTarget
from rebalancer.model.decisions.proposals import Proposal, ProposalState, ProposedPlan
from rebalancer.model.errors import RebalancerError, UnsafeDataError
from rebalancer.store import SqlProposals, SqlRecords
from rebalancer.store.proposals import ID_LENGTH, LETTERS
from tests.store.builders import SteppingClock, build_report

THERE = frozenset(f"uid-{number}" for number in range(20))
"""UIDs of the pods of the cluster."""


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
    def made(
        plan: ProposedPlan, *, whole: bool = True, there: frozenset[str] = THERE, seconds: float = 600.0
    ) -> Proposal:
        [found] = proposals.propose("c1", [(plan, whole)], pods=there, valid_seconds=seconds)
        return found

    return made


def test_a_proposal_comes_back_as_it_was(proposals: SqlProposals, propose: Propose) -> None:
    mark = ThresholdOverride(
        node="n1", strategy="LowNodeUtilization", high=0.6, target=0.5, source="alert Hot", max_excess=0.2
    )
    plan = a_plan(
        1,
        evictions=(a_move(1, cpu_millicores=1.5, targets=()), a_move(2, replacement_first=True)),
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


def test_an_open_one_is_listed_before_any_number_of_newer_ones_that_are_over(
    proposals: SqlProposals, propose: Propose
) -> None:
    still = propose(a_plan(1))
    for number in range(4):
        proposals.reject(propose(a_plan(number, pool=f"b{number}")).id, by="ann")
    assert proposals.all(most=3)[0].id == still.id


@pytest.mark.parametrize(
    ("plan", "whole", "stays", "there"),
    [
        (a_plan(2, 1), True, True, THERE),
        # another pod of the same node
        (a_plan(1, 3), True, True, THERE),
        (a_plan(1, 3), False, True, THERE),
        # one of the proposal's pods is gone
        (a_plan(1, 3), True, False, THERE - {"uid-2"}),
        (a_plan(1), True, False, THERE),
        (a_plan(1), False, True, THERE),
        (a_plan(1, 2, 3), False, False, THERE),
        (a_plan(1, 2, policy_hash="sha256:2"), True, False, THERE),
        (a_plan(1, 2, evictions=(a_move(1, node="n9"), a_move(2))), True, False, THERE),
        (a_plan(1, 2, evictions=(a_move(1, targets=("n3", "n2")), a_move(2))), True, True, THERE),
        (a_plan(1, 2, evictions=(a_move(1, targets=("n4", "n2")), a_move(2))), True, False, THERE),
    ],
)
def test_an_open_proposal_stays_while_as_many_pods_of_each_node_are_planned(
    plan: ProposedPlan,
    whole: bool,
    stays: bool,
    there: frozenset[str],
    proposals: SqlProposals,
    propose: Propose,
) -> None:
    first = propose(a_plan(1, 2))
    second = propose(plan, whole=whole, there=there)
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
    other.propose("c2", [(a_plan(4), True)], pods=THERE, valid_seconds=60.0)
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


def states(proposals: SqlProposals) -> dict[str, ProposalState]:
    return {each.id: each.state for each in proposals.all()}


def test_what_is_approved_is_begun_once_and_closed(
    proposals: SqlProposals, propose: Propose, records: SqlRecords, clock: SteppingClock
) -> None:
    made = propose(a_plan(1))
    assert proposals.approved() == []
    approved = proposals.approve(made.id, by="ann")
    assert approved == replace(made, state=ProposalState.APPROVED, decided_by="ann", decided_at=clock.now())
    assert records.proposals(clock=clock).approved() == [approved]
    assert [proposals.begin(approved), proposals.begin(approved)] == [True, False]
    with pytest.raises(UnsafeDataError, match="it is being carried out"):
        proposals.reject(made.id, by="bob")
    proposals.close(approved, state=ProposalState.CARRIED_OUT, reason="")
    assert states(proposals) == {made.id: ProposalState.CARRIED_OUT}
    # one that is over stays as it is
    proposals.close(approved, state=ProposalState.REFUSED, reason="late")
    assert states(proposals) == {made.id: ProposalState.CARRIED_OUT}


@pytest.mark.parametrize("recorded", [True, False])
def test_one_that_was_left_on_its_way_is_over(
    recorded: bool, records: SqlRecords, proposals: SqlProposals, propose: Propose
) -> None:
    made = proposals.approve(propose(a_plan(1)).id, by="ann")
    assert proposals.begin(made)
    if recorded:
        records.begin(build_report(cycle=made.run))
    assert proposals.approved() == []
    after = proposals.named(made.id)
    assert after is not None
    assert (after.state, after.reason) == (
        (ProposalState.CARRIED_OUT, f"ended early: see cycle {made.run}")
        if recorded
        else (ProposalState.REFUSED, "its process ended before the first eviction")
    )


def test_an_approved_one_is_not_superseded_and_no_other_is_opened(proposals: SqlProposals, propose: Propose) -> None:
    made = proposals.approve(propose(a_plan(1, 2)).id, by="ann")
    assert proposals.propose("c2", [(a_plan(3), True)], pods=THERE, valid_seconds=60.0) == []
    assert states(proposals) == {made.id: ProposalState.APPROVED}
    assert propose(a_plan(2, 1)).id == made.id


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda kept, made: kept.approve(made.id, by="ann"), "it was approved by ann at "),
        (lambda kept, made: kept.reject(made.id, by="bob", reason="no"), "it was rejected by bob at .*: no"),
        (lambda kept, made: kept.propose("c", [(a_plan(8, 9), True)], pods=THERE, valid_seconds=9.0), "superseded by "),
    ],
)
def test_what_is_not_open_can_not_be_approved(
    end: Callable[[SqlProposals, Proposal], object], said: str, proposals: SqlProposals, propose: Propose
) -> None:
    made = propose(a_plan(1))
    end(proposals, made)
    before = proposals.named(made.id)
    with pytest.raises(UnsafeDataError, match=f"proposal {made.id}: {said}"):
        proposals.approve(made.id, by="eve")
    assert proposals.named(made.id) == before


def test_one_that_expired_can_be_neither_approved_nor_begun(
    proposals: SqlProposals, propose: Propose, clock: SteppingClock
) -> None:
    made, other = propose(a_plan(1), seconds=60.0), propose(a_plan(1, pool="b"), seconds=60.0)
    approved = proposals.approve(other.id, by="ann")
    clock.sleep(60.0)
    for decide in (proposals.approve, proposals.reject):
        with pytest.raises(UnsafeDataError, match="it expired at "):
            decide(made.id, by="ann")
    assert proposals.approved() == []
    assert not proposals.begin(approved)
    with pytest.raises(UnsafeDataError, match="has none of this id"):
        proposals.approve("nope", by="ann")


def test_of_many_at_once_one_decides(proposals: SqlProposals, propose: Propose) -> None:
    made = propose(a_plan(1))

    def decide(number: int) -> bool:
        try:
            proposals.approve(made.id, by=f"user-{number}")
        except UnsafeDataError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(decide, range(16))) == 1
        approved = proposals.approved()[0]
        assert sum(threads.map(lambda _: proposals.begin(approved), range(16))) == 1


def test_two_cycles_at_once_open_one(proposals: SqlProposals) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: proposed_or_refused(proposals), range(8)))
    assert sum(each.state is ProposalState.PROPOSED for each in proposals.all()) == 1


def proposed_or_refused(proposals: SqlProposals) -> None:
    """Of two at once one fails in the database: its cycle notes it, and the next one finds the open proposal."""
    with suppress(RebalancerError, IntegrityError):
        proposals.propose("c1", [(a_plan(1), True)], pods=THERE, valid_seconds=60.0)


@pytest.mark.parametrize("before", [False, True])
def test_a_pod_that_would_be_moved_in_another_way_needs_a_new_proposal(propose: Propose, before: bool) -> None:
    def plan(first: bool) -> ProposedPlan:
        return a_plan(evictions=(a_move(1, replacement_first=first),))

    shown = propose(plan(before))
    assert propose(plan(before)).id == shown.id
    assert propose(plan(not before)).id != shown.id
