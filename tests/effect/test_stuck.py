"""Why nothing left a node that was found."""

import re
from pathlib import Path

import pytest

import rebalancer
from rebalancer.effect.blocked import BLOCKED_REASON_OF, LEAST_RELIEF, REASONS_OF_OTHER_GOALS, why_blocked
from rebalancer.effect.discovery import MISS_OF
from rebalancer.model.effect import BlockedReason, NodeObservation
from rebalancer.model.reason import Reason
from rebalancer.planner.jobs import MIN_RELIEF
from tests.effect.makers import a_finding


def group(*found: NodeObservation, paused: bool = False) -> BlockedReason:
    return why_blocked(found, paused=paused)[0]


# what a planner or an API server may say of a candidate, one of each kind by hand
@pytest.mark.parametrize(
    ("code", "stuck"),
    [
        (Reason.LOCAL_STORAGE, BlockedReason.GUARDS),
        (Reason.DAEMONSET_POD, BlockedReason.GUARDS),
        (Reason.CROSS_CLUSTER, BlockedReason.GUARDS),
        (Reason.DENY_LISTED, BlockedReason.LISTS),
        (Reason.LEVEL_FORBIDS, BlockedReason.LEVELS),
        (Reason.WINDOW_CLOSED, BlockedReason.WINDOWS),
        (Reason.WINDOW_BROKEN, BlockedReason.WINDOWS),
        (Reason.LIMIT_CYCLE, BlockedReason.LIMITS),
        (Reason.LIMIT_LANDINGS, BlockedReason.LIMITS),
        (Reason.READY_SHARE, BlockedReason.LIMITS),
        (Reason.COOLDOWN_NODE, BlockedReason.COOLDOWNS),
        (Reason.GAVE_UP, BlockedReason.COOLDOWNS),
        (Reason.BRAKED, BlockedReason.COOLDOWNS),
        (Reason.PAUSED, BlockedReason.PAUSED),
        (Reason.BUDGET_EXHAUSTED, BlockedReason.BUDGETS),
        (Reason.SERVER_BUDGET, BlockedReason.BUDGETS),
        (Reason.NO_LANDING, BlockedReason.NO_LANDING),
        (Reason.WOULD_COME_BACK, BlockedReason.NO_LANDING),
        (Reason.POOL_FULL, BlockedReason.POOL_FULL),
        (Reason.SERVER_FORBIDDEN, BlockedReason.SERVER),
        (Reason.OUT_OF_TIME, BlockedReason.POOR_SELECTION),
        (Reason.GOAL_REACHED, BlockedReason.POOR_SELECTION),
        (Reason.LEASE_LOST, BlockedReason.INTERRUPTED),
        (Reason.STOPPING, BlockedReason.INTERRUPTED),
        (Reason.NO_POD_USAGE, BlockedReason.NO_CANDIDATES),
        (Reason.NO_RELIEF, BlockedReason.NO_CANDIDATES),
    ],
)
def test_a_node_whose_candidates_all_got_one_code_is_in_that_codes_group(code: Reason, stuck: BlockedReason) -> None:
    assert group(a_finding(3, {code: 5})) is stuck


def test_every_group_but_the_dry_run_is_some_codes() -> None:
    assert set(BLOCKED_REASON_OF.values()) == set(BlockedReason) - {BlockedReason.DRY_RUN}


def test_every_code_is_of_a_candidate_or_else_of_a_node_or_a_cycle() -> None:
    assert BLOCKED_REASON_OF.keys() | MISS_OF.keys() | REASONS_OF_OTHER_GOALS == set(Reason)
    assert not BLOCKED_REASON_OF.keys() & MISS_OF.keys()
    assert not REASONS_OF_OTHER_GOALS & (BLOCKED_REASON_OF.keys() | MISS_OF.keys())


def test_every_code_that_the_source_gives_to_candidates_has_a_group() -> None:
    """Found in the source of the rooms that refuse candidates."""
    root = Path(rebalancer.__file__).parent
    files = [*root.glob("constraints/*.py"), *root.glob("planner/*.py"), *root.glob("placement/*.py")]
    files += [root / "kube" / "actions" / "evict.py", root / "cycle" / "run.py"]
    given = {Reason[name] for file in files for name in re.findall(r"\bReason\.([A-Z_]+)\b", file.read_text())}
    assert len(given) > 50
    assert given <= BLOCKED_REASON_OF.keys() | REASONS_OF_OTHER_GOALS


def test_the_largest_group_counts_not_the_largest_code() -> None:
    codes = {Reason.LOCAL_STORAGE: 4, Reason.NO_LANDING: 3, Reason.LANDING_TOO_WARM: 3}
    assert group(a_finding(3, codes)) is BlockedReason.NO_LANDING


def test_of_groups_of_one_size_the_one_that_got_furthest_counts() -> None:
    assert group(a_finding(3, {Reason.LOCAL_STORAGE: 3, Reason.NO_LANDING: 3})) is BlockedReason.NO_LANDING
    assert group(a_finding(3, {Reason.LIMIT_POOL: 3, Reason.WINDOW_CLOSED: 3})) is BlockedReason.LIMITS


def test_pods_that_nobody_would_move_count_only_where_nothing_else_is() -> None:
    assert group(a_finding(3, {Reason.DAEMONSET_POD: 9, Reason.LIMIT_POOL: 1})) is BlockedReason.LIMITS
    assert group(a_finding(3, {Reason.DAEMONSET_POD: 9, Reason.NO_RELIEF: 1})) is BlockedReason.NO_CANDIDATES
    assert group(a_finding(3, {Reason.NO_RELIEF: 30, Reason.LIMIT_POOL: 1})) is BlockedReason.LIMITS


def test_pods_that_are_each_too_small_are_a_poor_selection_only_if_they_could_make_up_the_excess() -> None:
    assert group(a_finding(3, {Reason.NO_RELIEF: 49})) is BlockedReason.NO_CANDIDATES
    assert group(a_finding(3, {Reason.NO_RELIEF: 50})) is BlockedReason.POOR_SELECTION
    # in one cycle, not over several
    assert (
        group(a_finding(3, {Reason.NO_RELIEF: 30}), a_finding(5, {Reason.NO_RELIEF: 30})) is BlockedReason.NO_CANDIDATES
    )


def test_the_least_relief_is_the_planners() -> None:
    assert LEAST_RELIEF == MIN_RELIEF


def test_a_pause_of_all_of_that_time_counts_before_everything() -> None:
    assert group(a_finding(3, {Reason.LOCAL_STORAGE: 9, Reason.PAUSED: 1}), paused=True) is BlockedReason.PAUSED
    assert group(a_finding(3, {Reason.LOCAL_STORAGE: 9, Reason.PAUSED: 1})) is BlockedReason.GUARDS


def test_nothing_on_the_node_is_no_candidates() -> None:
    assert group(a_finding(3)) is BlockedReason.NO_CANDIDATES


def test_what_is_said_of_the_node_is_no_reason_of_a_candidate() -> None:
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
    older = a_finding(3, {Reason.NO_LANDING: 2}, examples=("shop/old: no node would take the replacement",))
    newer = a_finding(
        5,
        {Reason.NO_LANDING: 3, Reason.DAEMONSET_POD: 2},
        examples=("shop/a: this", "shop/b: that", "shop/c: more", "shop/d: less", "not hot for long enough: 1 of 3"),
    )
    without = a_finding(7, {Reason.NO_LANDING: 1}, examples=("the node is not Ready: since 1/2 hours",))
    _, codes, text = why_blocked([older, newer, without], paused=False)
    assert codes == {Reason.NO_LANDING: 6, Reason.DAEMONSET_POD: 2}
    assert text == (
        "the replacements would not have landed where they may: NoLanding 6, DaemonSetPod 2 in 3 cycles; "
        "would have helped most: shop/a: this; shop/b: that; shop/c: more"
    )
