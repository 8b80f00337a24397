"""Why nothing left a node that was found."""

import pytest

from rebalancer.effect.blocked import why_blocked
from rebalancer.model.reason import BlockedReason, Reason
from rebalancer.model.records.effect import NodeObservation
from tests.effect.builders import a_finding


def group(*found: NodeObservation, paused: bool = False) -> BlockedReason:
    return why_blocked(found, paused=paused)[0]


# what a planner or an API server may say of a candidate, one of each kind by hand
@pytest.mark.parametrize(
    ("code", "stuck"),
    [
        (code, stuck)
        for stuck, codes in {
            BlockedReason.GUARDS: (Reason.LOCAL_STORAGE, Reason.DAEMONSET_POD, Reason.CROSS_CLUSTER),
            BlockedReason.LISTS: (Reason.DENY_LISTED,),
            BlockedReason.LEVELS: (Reason.LEVEL_FORBIDS,),
            BlockedReason.WINDOWS: (Reason.WINDOW_CLOSED, Reason.WINDOW_INVALID),
            BlockedReason.LIMITS: (Reason.LIMIT_CYCLE, Reason.LIMIT_REPLACEMENTS, Reason.READY_SHARE_TOO_LOW),
            BlockedReason.COOLDOWNS: (Reason.COOLDOWN_NODE, Reason.EVICTION_BACKOFF, Reason.CIRCUIT_BREAKER_OPEN),
            BlockedReason.PAUSED: (Reason.PAUSED,),
            BlockedReason.BUDGETS: (Reason.BUDGET_EXHAUSTED, Reason.SERVER_BUDGET),
            BlockedReason.NO_TARGET_NODE: (Reason.NO_TARGET_NODE, Reason.WOULD_RETURN_TO_NODE),
            BlockedReason.POOL_FULL: (Reason.POOL_FULL,),
            BlockedReason.SERVER: (Reason.SERVER_FORBIDDEN,),
            BlockedReason.POOR_SELECTION: (Reason.PLANNING_TIMEOUT, Reason.GOAL_REACHED),
            BlockedReason.INTERRUPTED: (Reason.LEASE_LOST, Reason.STOPPING),
            BlockedReason.NO_CANDIDATES: (Reason.NO_POD_USAGE, Reason.NO_RELIEF),
        }.items()
        for code in codes
    ],
)
def test_a_node_whose_candidates_all_got_one_code_is_in_that_codes_group(code: Reason, stuck: BlockedReason) -> None:
    assert group(a_finding(3, {code: 5})) is stuck


def test_every_group_but_the_dry_run_is_some_codes() -> None:
    groups = {code.group for code in Reason if isinstance(code.group, BlockedReason)}
    assert groups == set(BlockedReason) - {BlockedReason.DRY_RUN}


@pytest.mark.parametrize(
    ("codes", "stuck"),
    [
        ({}, BlockedReason.NO_CANDIDATES),
        # the largest group, not the largest code
        (
            {Reason.LOCAL_STORAGE: 4, Reason.NO_TARGET_NODE: 3, Reason.TARGET_NODE_WITHOUT_HEADROOM: 3},
            BlockedReason.NO_TARGET_NODE,
        ),
        # of groups of one size the one that got furthest
        ({Reason.LOCAL_STORAGE: 3, Reason.NO_TARGET_NODE: 3}, BlockedReason.NO_TARGET_NODE),
        ({Reason.LIMIT_POOL: 3, Reason.WINDOW_CLOSED: 3}, BlockedReason.LIMITS),
        # pods that are never moved count only where nothing else is
        ({Reason.DAEMONSET_POD: 9, Reason.LIMIT_POOL: 1}, BlockedReason.LIMITS),
        ({Reason.DAEMONSET_POD: 9, Reason.NO_RELIEF: 1}, BlockedReason.NO_CANDIDATES),
        ({Reason.NO_RELIEF: 30, Reason.LIMIT_POOL: 1}, BlockedReason.LIMITS),
    ],
)
def test_the_group_that_counts_among_several(codes: dict[Reason, int], stuck: BlockedReason) -> None:
    assert group(a_finding(3, codes)) is stuck


def test_pods_that_are_each_too_small_are_a_poor_selection_only_if_they_could_make_up_the_excess() -> None:
    assert group(a_finding(3, {Reason.NO_RELIEF: 49})) is BlockedReason.NO_CANDIDATES
    assert group(a_finding(3, {Reason.NO_RELIEF: 50})) is BlockedReason.POOR_SELECTION
    # in one cycle, not over several
    assert (
        group(a_finding(3, {Reason.NO_RELIEF: 30}), a_finding(5, {Reason.NO_RELIEF: 30})) is BlockedReason.NO_CANDIDATES
    )


def test_a_pause_of_all_of_that_time_counts_before_everything() -> None:
    assert group(a_finding(3, {Reason.LOCAL_STORAGE: 9, Reason.PAUSED: 1}), paused=True) is BlockedReason.PAUSED
    assert group(a_finding(3, {Reason.LOCAL_STORAGE: 9, Reason.PAUSED: 1})) is BlockedReason.GUARDS


def test_a_reason_of_the_node_is_no_reason_of_a_candidate() -> None:
    stuck, codes, _ = why_blocked([a_finding(3, {Reason.SETTLING: 9, Reason.LIMIT_POOL: 1})], paused=False)
    assert (stuck, codes) == (BlockedReason.LIMITS, {Reason.LIMIT_POOL: 1})


@pytest.mark.parametrize(
    ("found", "stuck"),
    [
        ([a_finding(3, {Reason.GOAL_REACHED: 4}, dry_run=True, evictions=2)], BlockedReason.DRY_RUN),
        ([a_finding(3, {Reason.GOAL_REACHED: 4}, dry_run=True)], BlockedReason.DRY_RUN),
        ([a_finding(3, dry_run=True)], BlockedReason.DRY_RUN),
        ([a_finding(3, {Reason.LIMIT_POOL: 4}, dry_run=True)], BlockedReason.LIMITS),
        (
            [a_finding(3, {Reason.GOAL_REACHED: 4}, dry_run=True, evictions=2), a_finding(5)],
            BlockedReason.NO_CANDIDATES,
        ),
    ],
)
def test_a_dry_run_is_the_reason_only_where_a_real_run_would_have_moved_something(
    found: list[NodeObservation], stuck: BlockedReason
) -> None:
    assert group(*found) is stuck


def test_the_sentence_counts_by_code_and_names_the_pods_that_would_have_helped_most() -> None:
    older = a_finding(3, {Reason.NO_TARGET_NODE: 2}, examples=("shop/old: no node would take the replacement",))
    newer = a_finding(
        5,
        {Reason.NO_TARGET_NODE: 3, Reason.DAEMONSET_POD: 2},
        examples=("shop/a: this", "shop/b: that", "shop/c: more", "shop/d: less", "not hot for long enough: 1 of 3"),
    )
    without = a_finding(7, {Reason.NO_TARGET_NODE: 1}, examples=("the node is not Ready: since 1/2 hours",))
    _, codes, text = why_blocked([older, newer, without], paused=False)
    assert codes == {Reason.NO_TARGET_NODE: 6, Reason.DAEMONSET_POD: 2}
    assert text == (
        "no suitable target node for the replacements: NoTargetNode 6, DaemonSetPod 2 in 3 cycles; "
        "would have helped most: shop/a: this; shop/b: that; shop/c: more"
    )
