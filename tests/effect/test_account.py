"""What a node's change was made of, and what it comes to."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.effect.account import PodNow, account, measured_relief, outcome_of, planned_relief
from rebalancer.model.records.effect import ChangeBreakdown, Outcome, PodBefore
from tests.effect.builders import a_breakdown, a_pod, an_assessment


def now(name: str, millicores: float, *, is_replacement: bool = False) -> PodNow:
    return PodNow(uid=f"uid-{name}", name=f"shop/{name}", amount=millicores, is_replacement=is_replacement)


def an_account(**changes: float) -> ChangeBreakdown:
    """Closes by what is unexplained, unless that is given."""
    parts = {"evicted": 0.0, "departed": 0.0, "arrived": 0.0, "returned": 0.0, "remaining_change": 0.0}
    values = {"before": 8_000.0, "after": 7_500.0, **parts, **changes}
    rest = values["after"] - values["before"] + values["evicted"] + values["departed"]
    rest -= values["arrived"] + values["returned"] + values["remaining_change"] + values.get("surplus", 0.0)
    rest -= values.get("pool_growth", 0.0)
    return ChangeBreakdown(**({"residual": rest} | values))


def closes(each: ChangeBreakdown) -> bool:
    """The sum in the docstring of ChangeBreakdown."""
    parts = -each.evicted - each.departed + each.arrived + each.returned + each.remaining_change
    parts += each.pool_growth + each.surplus + each.residual
    return math.isclose(each.after - each.before, parts, rel_tol=1e-9, abs_tol=1e-6)


# ---- the account


def test_each_pod_counts_in_one_part() -> None:
    before = [a_pod("gone", 1_500, evicted=True), a_pod("left", 300), a_pod("stayed", 1_000), a_pod("calmed", 800)]
    after = [now("stayed", 1_250), now("calmed", 700), now("new", 400), now("back", 600, is_replacement=True)]
    parts = {"evicted": 1_500.0, "departed": 300.0, "arrived": 400.0, "returned": 600.0, "remaining_change": 150.0}
    found = account(an_assessment(*before), after, 8_000.0, 7_420.0)
    assert found == a_breakdown(8_000.0, 7_420.0, **parts, residual=70.0)


def test_what_siblings_carry_for_a_replacement_is_kept_apart_from_growth() -> None:
    carrying = replace(now("stayed", 1_500), surplus=400.0)
    found = account(an_assessment(a_pod("gone", 1_500, evicted=True), a_pod("stayed", 1_000)), [carrying], 8e3, 7e3)
    assert (found.remaining_change, found.surplus, found.residual) == (100.0, 400.0, 0.0)
    assert closes(found)


def test_what_the_pool_grew_by_is_kept_apart_from_growth_of_the_node() -> None:
    before = [a_pod("gone", 2_000, evicted=True), a_pod("stayed", 5_000)]
    # all that stayed uses a tenth more: the pod, and 1,000m of the machine
    found = account(an_assessment(*before), [now("stayed", 5_800)], 8e3, 6_900.0, growth=1.1)
    assert found.pool_growth == pytest.approx(600.0)
    assert (found.remaining_change, found.residual) == (pytest.approx(300.0), pytest.approx(0.0))
    assert closes(found)


def test_a_pod_that_was_to_be_evicted_and_is_still_there_has_stayed() -> None:
    found = account(an_assessment(a_pod("a", 1_500, evicted=True)), [now("a", 1_600)], 8_000.0, 8_100.0)
    assert (found.evicted, found.remaining_change, found.residual) == (0.0, 100.0, 0.0)


def test_what_is_not_known_of_a_pod_is_unexplained() -> None:
    before = [a_pod("gone", math.nan, evicted=True), a_pod("stayed", math.nan)]
    found = account(an_assessment(*before), [now("stayed", 500), now("new", math.nan)], 8_000.0, 7_000.0)
    assert (found.evicted, found.remaining_change, found.arrived, found.residual) == (0.0, 0.0, 0.0, -1_000.0)
    assert closes(found)


cpu = st.one_of(st.floats(0, 64_000), st.just(math.nan))
uids = st.integers(0, 12)


@given(
    before=st.dictionaries(uids, st.tuples(cpu, st.booleans())),
    after=st.dictionaries(uids, st.tuples(cpu, st.booleans())),
    node_before=st.floats(0, 640_000),
    node_after=st.floats(0, 640_000),
)
def test_the_account_closes_for_any_pods(
    before: dict[int, tuple[float, bool]],
    after: dict[int, tuple[float, bool]],
    node_before: float,
    node_after: float,
) -> None:
    pods = [PodBefore(uid=str(uid), pod="p", amount=used, evicted=gone) for uid, (used, gone) in before.items()]
    there = [PodNow(uid=str(uid), name="p", amount=used, is_replacement=ours) for uid, (used, ours) in after.items()]
    found = account(an_assessment(*pods), there, node_before, node_after)
    assert closes(found)
    assert min(found.evicted, found.departed, found.arrived, found.returned) >= 0


@given(
    pods=st.lists(
        st.tuples(st.floats(0, 9_000), st.floats(0, 9_000), st.sampled_from(["evicted", "left", "stayed", "landed"]))
    ),
    own=st.floats(0, 2_000),
)
def test_nothing_is_unexplained_where_the_nodes_figures_are_the_sums_of_its_pods(
    pods: list[tuple[float, float, str]], own: float
) -> None:
    before = [
        PodBefore(uid=str(uid), pod="p", amount=then, evicted=kind == "evicted")
        for uid, (then, _, kind) in enumerate(pods)
        if kind != "landed"
    ]
    after = [
        PodNow(uid=str(uid), name="p", amount=later, is_replacement=False)
        for uid, (_, later, kind) in enumerate(pods)
        if kind in ("stayed", "landed")
    ]
    node_before = own + sum(each.amount for each in before)
    node_after = own + sum(each.amount for each in after)
    found = account(an_assessment(*before), after, node_before, node_after)
    assert abs(found.residual) < 1e-6


# ---- the outcome: node of 10 cores, from 80%, target 70%


@pytest.mark.parametrize(
    ("after", "parts", "outcome"),
    [
        (0.70, {}, Outcome.COOLED),
        (0.65, {"evicted": 2_000.0, "arrived": 500.0}, Outcome.COOLED),
        (0.75, {"evicted": 500.0}, Outcome.TOO_FEW_EVICTED),
        # what landed is more than what was missing, but without it it would not have cooled either
        (0.85, {"evicted": 900.0, "arrived": 1_400.0}, Outcome.TOO_FEW_EVICTED),
        (0.75, {"evicted": 1_000.0, "arrived": 500.0}, Outcome.NEW_PODS_ARRIVED),
        (0.75, {"evicted": 1_500.0, "arrived": 400.0, "remaining_change": 600.0}, Outcome.REMAINING_PODS_GREW),
        (
            0.75,
            {"evicted": 1_500.0, "arrived": 300.0, "returned": 400.0, "remaining_change": 300.0},
            Outcome.REPLACEMENTS_RETURNED,
        ),
        (0.75, {"evicted": 1_500.0, "arrived": 200.0, "remaining_change": 200.0}, Outcome.UNEXPLAINED),
        (0.75, {"evicted": 1_500.0, "arrived": 500.0, "returned": 500.0}, Outcome.REPLACEMENTS_RETURNED),
        (0.75, {"evicted": 1_500.0, "remaining_change": 300.0, "surplus": 700.0}, Outcome.REPLACEMENTS_NOT_READY),
        (0.75, {"evicted": 1_500.0, "remaining_change": 300.0, "pool_growth": 700.0}, Outcome.POOL_GREW),
    ],
)
def test_what_did_not_cool_is_blamed_on_the_largest_adverse_part(
    after: float, parts: dict[str, float], outcome: Outcome
) -> None:
    made = an_assessment(a_pod("a", evicted=True))
    found, detail = outcome_of(made, an_account(after=after * 10_000, **parts), after)
    assert found is outcome
    assert detail.startswith(f"80% to {after * 100:g}%, target 70%")


def test_without_an_account_it_is_known_only_that_it_cooled_and_without_a_figure_of_the_node_nothing() -> None:
    for after in (None, math.nan, 0.72):
        assert outcome_of(an_assessment(), None, after)[0] is Outcome.UNKNOWN
    assert outcome_of(an_assessment(), None, 0.6)[0] is Outcome.COOLED


def test_too_little_is_no_verdict_on_pods_whose_cpu_is_not_known() -> None:
    made = an_assessment(a_pod("a", math.nan, evicted=True))
    assert outcome_of(made, an_account(after=7_500.0), 0.75)[0] is Outcome.UNEXPLAINED
    assert outcome_of(made, an_account(after=8_500.0, remaining_change=900.0), 0.85)[0] is Outcome.REMAINING_PODS_GREW


def test_the_sentence_has_the_parts_that_are_not_rounded_to_zero() -> None:
    _, detail = outcome_of(an_assessment(), an_account(evicted=1_500.0, arrived=1_000.0, departed=4.0), 0.75)
    assert detail == (
        "80% to 75%, target 70%: other pods arrived and took the headroom (evicted -1500m, landed +1000m)"
    )


def test_every_outcome_has_a_case_here() -> None:
    cases = {
        Outcome.COOLED,
        Outcome.TOO_FEW_EVICTED,
        Outcome.NEW_PODS_ARRIVED,
        Outcome.REMAINING_PODS_GREW,
        Outcome.POOL_GREW,
        Outcome.REPLACEMENTS_NOT_READY,
        Outcome.REPLACEMENTS_RETURNED,
        Outcome.UNEXPLAINED,
    }
    assert cases | {Outcome.UNKNOWN} == set(Outcome)


parts = st.floats(0, 5_000)


@given(evicted=parts, left=parts, landed=parts, came_back=parts, grew=st.floats(-5_000, 5_000), after=st.floats(0, 1))
def test_what_is_blamed_made_it_warmer(
    evicted: float, left: float, landed: float, came_back: float, grew: float, after: float
) -> None:
    made = an_assessment(a_pod("a", evicted=True))
    grown = {"returned": came_back, "remaining_change": grew}
    found = an_account(after=after * 10_000, evicted=evicted, departed=left, arrived=landed, **grown)
    outcome, _ = outcome_of(made, found, after)
    assert (outcome is Outcome.COOLED) == (after <= 0.7 * (1 + 1e-9))
    blamed = {
        Outcome.NEW_PODS_ARRIVED: landed,
        Outcome.REPLACEMENTS_RETURNED: came_back,
        Outcome.REMAINING_PODS_GREW: grew,
        Outcome.UNEXPLAINED: found.residual,
    }
    if outcome in blamed:
        assert blamed[outcome] > 0
        assert blamed[outcome] == max(blamed.values())
        assert 8_000.0 - evicted <= 7_000.0 * (1 + 1e-9)


def test_relief_is_planned_and_measured_in_the_same_unit() -> None:
    made = an_assessment(after_share=0.72)
    assert planned_relief(made) == pytest.approx(1_200.0)
    assert measured_relief(made) == pytest.approx(800.0)
    assert math.isnan(measured_relief(an_assessment()))
