"""Node forecasts from pods' histories: the sum, its recomposition, and what history does not say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.forecast import Arrival
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from tests.builders import NOW, a_node, a_pod
from tests.forecast.builders import DAYS, MIDNIGHT, flat, forecasts, history, the_forecast, world

AGED = 60 * 86_400.0
ON_A = {"node": "a", "age": AGED}
ONE_POD = world([a_node("a")], [a_pod("web-0", **ON_A)])


def rising() -> np.ndarray:
    """0, 1, ..., 287 within every day: its P95 is 0.95 * 287 = 272.65."""
    return np.tile(np.arange(SLOTS, dtype=np.float32), (DAYS, 1))


def test_the_hand_computed_example_holds_to_the_digit() -> None:
    # web: 0..287 in each day, P95 272.65; db: 100 m on the last day, 40 m before; the node itself: 10 m
    past = history(
        {"shop/web-0": rising(), "shop/db-0": flat(40, 40, 40, 40, 40, 40, 40, 100)},
        {"a": rising() + flat(40, 40, 40, 40, 40, 40, 40, 100) + 10},
    )
    snapshot = world([a_node("a", cpu=1000)], [a_pod("web-0", **ON_A), a_pod("db-0", **ON_A)])
    found = the_forecast(past, snapshot, predictor="weightedP95", dayWeights={"weights": [3.0, 1.0]})
    # days: 272.65 + 40 + 10 = 322.65, the last one 272.65 + 100 + 10 = 382.65; weights 1/4 and 3/4
    assert found.parts.daily_p95 == pytest.approx([322.65] * 7 + [382.65], abs=1e-3)
    assert found.parts.weights == pytest.approx([0] * 6 + [0.25, 0.75])
    assert found.parts.products == pytest.approx([0] * 6 + [80.6625, 286.9875], abs=1e-3)
    assert found.parts.weighted_p95 == pytest.approx(367.65, abs=1e-3)
    assert found.parts.level == pytest.approx(367.65, abs=1e-3)
    # 17 practice forecasts, one each 6 hours: 13 errors of 0, then 4 of 60 with a mean of the days of 322.65; the
    # quantile at 0.9 * (1 + 0.25 / 4.25) is the largest. The mean of the days is (7 * 322.65 + 382.65) / 8 = 330.15 now
    margin = 330.15 * 60 / 322.65
    assert found.margin == pytest.approx(margin, abs=1e-2)
    assert found.peak_millicores == pytest.approx(367.65 + margin, abs=1e-2)
    assert found.peak_share == pytest.approx(found.peak_millicores / 1000)


def test_peaks_that_do_not_meet_are_not_added_up() -> None:
    day, night = np.zeros((DAYS, SLOTS), dtype=np.float32), np.zeros((DAYS, SLOTS), dtype=np.float32)
    day[:, 100:130], night[:, 240:270] = 1000, 1000  # two and a half hours each
    past = history({"shop/day-0": day, "shop/night-0": night})
    both = world([a_node("a")], [a_pod("day-0", **ON_A), a_pod("night-0", **ON_A)])
    alone = [
        the_forecast(past, world([a_node("a")], [a_pod(name, **ON_A)])).peak_millicores for name in ("day-0", "night-0")
    ]
    together = the_forecast(past, both).peak_millicores
    assert together == pytest.approx(1000, rel=0.02)
    assert sum(alone) > 1.2 * together


@settings(max_examples=20, deadline=None)
@given(levels=st.lists(st.integers(1, 4000), min_size=1, max_size=6))
def test_a_constant_is_forecast_as_that_constant(levels: list[int]) -> None:
    names = [f"p-{index}" for index in range(len(levels))]
    past = history({f"shop/{name}": flat(level) for name, level in zip(names, levels, strict=True)})
    found = the_forecast(past, world([a_node("a", cpu=64_000)], [a_pod(name, **ON_A) for name in names]))
    assert found.peak_millicores == pytest.approx(sum(levels), rel=1e-5)
    assert found.profile == pytest.approx(np.full(SLOTS, sum(levels)), rel=1e-5)
    assert found.confidence == pytest.approx(1.0)
    assert found.days_used == DAYS


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(6)), seed=st.integers(0, 1000))
def test_the_order_of_pods_does_not_matter(order: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    series = {f"shop/web-{index}": random.gamma(2, 100, (DAYS, SLOTS)).astype(np.float32) for index in range(6)}
    pods = [a_pod(f"web-{index}", owner="web", node="ab"[index % 2], age=AGED) for index in range(6)]
    nodes = [a_node("a"), a_node("b")]
    mixed = {f"shop/web-{index}": series[f"shop/web-{index}"] for index in order}
    one = forecasts(history(series), world(nodes, pods))
    other = forecasts(history(mixed), world(nodes, [pods[index] for index in order]))
    for mine, theirs in zip(one.nodes, other.nodes, strict=True):
        assert mine.peak_millicores == pytest.approx(theirs.peak_millicores, rel=1e-4)


def test_a_pod_that_moved_takes_its_history_along() -> None:
    past = history({"shop/web-0": flat(700), "shop/db-0": flat(200)})
    nodes = [a_node("a"), a_node("b")]
    before = forecasts(past, world(nodes, [a_pod("web-0", **ON_A), a_pod("db-0", node="b", age=AGED)]))
    after = forecasts(past, world(nodes, [a_pod("web-0", node="b", age=AGED), a_pod("db-0", node="b", age=AGED)]))
    assert [each.peak_millicores for each in before.nodes] == pytest.approx([700, 200])
    assert after.nodes[1].peak_millicores == pytest.approx(900)
    assert not after.nodes[0].peak_millicores > 0


def test_a_pod_that_left_is_not_taken_for_what_the_node_uses_itself() -> None:
    # 5,000 m left with shop/gone-0 yesterday's end; since then the node uses 100 m by itself
    whole = flat(5700)
    whole[-1, -24:] = 700
    past = history({"shop/web-0": flat(600), "shop/gone-0": flat(5000)}, {"a": whole})
    found = the_forecast(past, world([a_node("a", cpu=10_000)], [a_pod("web-0", **ON_A)]))
    assert 600 <= found.peak_millicores <= 1000


def test_what_the_machine_uses_by_itself_is_part_of_the_sum() -> None:
    past = history({"shop/web-0": flat(600)}, {"a": flat(850)})
    assert the_forecast(past, ONE_POD).peak_millicores == pytest.approx(850)


def test_gaps_in_samples_and_whole_days_without_any_leave_the_level_as_it_is() -> None:
    holed = flat(500)
    holed[2, 10:90] = np.nan
    holed[4] = np.nan
    past = history({"shop/web-0": holed, "shop/web-1": flat(500)})
    found = the_forecast(past, world([a_node("a")], [a_pod("web-0", **ON_A), a_pod("web-1", **ON_A)]))
    assert found.peak_millicores == pytest.approx(1000, rel=1e-4)
    lost = flat(500)
    lost[3] = np.nan
    found = the_forecast(history({"shop/web-0": lost}), ONE_POD)
    assert found.days_used == DAYS - 1
    assert found.peak_millicores == pytest.approx(500, rel=1e-4)


def test_a_node_of_which_nothing_is_known_gets_no_forecast_and_a_note() -> None:
    past = history({"shop/web-0": flat(500)}, {"a": flat(500)})
    result = forecasts(past, world([a_node("a"), a_node("b")], [a_pod("web-0", **ON_A)]))
    assert np.isnan(result.nodes[1].peak_millicores)
    assert np.isnan(result.nodes[1].peak_at)
    assert result.nodes[1].confidence == 0
    assert "1 node without a day" in result.notes[0]


def test_a_young_cluster_is_less_sure_and_keeps_more_margin() -> None:
    random = np.random.default_rng(3)
    noisy = (random.random((DAYS, SLOTS)) * 200 + 400).astype(np.float32) * np.linspace(1, 1.3, DAYS)[:, None]
    old = the_forecast(history({"shop/web-0": noisy}), ONE_POD)
    young = the_forecast(history({"shop/web-0": noisy[-2:]}), ONE_POD)
    assert (old.days_used, young.days_used) == (8, 2)
    assert young.confidence < old.confidence
    assert young.margin > old.margin > 0


def test_a_new_pod_takes_its_services_curve_scaled_by_what_it_has_shown() -> None:
    wave = flat(100)
    wave[:, 120:160] = 400
    new = wave[-1:] * 2  # it has run for one day and uses twice what its siblings use
    past = history({"shop/web-0": wave, "shop/web-1": wave, "shop/web-2": wave, "shop/web-9": new})
    pods = [a_pod(f"web-{index}", owner="web", node="b", age=AGED) for index in range(3)]
    snapshot = world([a_node("a"), a_node("b")], [*pods, a_pod("web-9", owner="web", **ON_A)])
    found = the_forecast(past, snapshot)
    # the curve is the mean with itself on its own day; there 2 of (1 + 1 + 1 + 2) / 4 = 1.25
    assert found.parts.daily_p95[-1] == pytest.approx(800, rel=1e-3)
    assert found.parts.daily_p95[0] == pytest.approx(400 * 2 / 1.25, rel=1e-3)
    assert found.parts.own_share < 1


def test_a_pod_that_has_shown_nothing_counts_as_an_average_replica_also_of_pods_that_are_gone() -> None:
    past = history({"shop/web-old1": flat(300), "shop/web-old2": flat(500)})
    found = the_forecast(past, world([a_node("a")], [a_pod("web-new", owner="web", **ON_A)]))
    assert found.parts.level == pytest.approx(400, rel=1e-3)
    assert found.confidence == pytest.approx(0.5)


def test_replicas_of_two_kinds_keep_apart_and_a_new_one_takes_its_own_layer() -> None:
    light, heavy = flat(100), flat(100)
    heavy[:, 200:240] = 2000  # the heavy ones have another shape, too
    series = {f"shop/db-{index}": (light if index < 3 else heavy) for index in range(6)}
    series["shop/db-9"] = heavy[-1:]
    pods = [a_pod(f"db-{index}", owner="db", node="b", age=AGED) for index in range(6)]
    snapshot = world([a_node("a"), a_node("b")], [*pods, a_pod("db-9", owner="db", **ON_A)])
    found = the_forecast(history(series), snapshot)
    assert found.parts.daily_p95[0] == pytest.approx(2000, rel=0.02)
    assert found.profile[0] == pytest.approx(100, rel=0.02)


def test_a_core_of_a_faster_machine_does_more_of_the_same_work() -> None:
    fast = a_node("fast", labels={"type": "new"})
    slow = a_node("slow", labels={"type": "old"})
    past = history({"shop/web-0": flat(400), "shop/web-1": flat(400)})
    pods = [a_pod(f"web-{index}", owner="web", node="slow", age=AGED) for index in range(2)]
    snapshot = world([fast, slow], [*pods, a_pod("web-9", owner="web", node="fast")])
    found = the_forecast(past, snapshot, generation={"label": "type", "factors": {"new": 2.0, "old": 1.0}})
    assert found.parts.level == pytest.approx(200, rel=1e-3)


def test_a_saturated_node_is_judged_by_what_its_pods_siblings_used() -> None:
    wave = flat(1000)
    wave[:, 100:150] = 3000
    clipped = wave.copy()
    clipped[:, 100:150] = 2000  # two of them got 4,000 m of 4,000 m
    series = {f"shop/web-{index}": wave for index in range(4)}
    series |= {"shop/web-8": clipped, "shop/web-9": clipped}
    pods = [a_pod(f"web-{index}", owner="web", node="b", age=AGED) for index in range(4)]
    mine = [a_pod(f"web-{index}", owner="web", **ON_A) for index in (8, 9)]
    snapshot = world([a_node("a", cpu=4000), a_node("b", cpu=32_000)], [*pods, *mine])
    found = the_forecast(history(series, {"a": clipped * 2, "b": wave * 4}), snapshot)
    assert found.peak_millicores == pytest.approx(6000, rel=0.01)
    assert found.peak_share == pytest.approx(1.5, rel=0.01)


def test_expected_arrivals_bring_their_services_curve() -> None:
    past = history({"shop/web-0": flat(400), "shop/web-1": flat(600), "shop/db-0": flat(100)})
    pods = [a_pod(f"web-{index}", owner="web", node="b", age=AGED) for index in range(2)]
    snapshot = world([a_node("a"), a_node("b")], [a_pod("db-0", **ON_A), *pods])
    coming = (Arrival(service="shop/web", nodes={"a": 0.5}), Arrival(service="shop/nobody", nodes={"a": 1.0}))
    result = forecasts(past, snapshot, arrivals=coming)
    assert result.nodes[0].parts.level == pytest.approx(100 + 0.5 * 500)
    assert any("shop/nobody" in note for note in result.notes)


def test_crowds_of_short_lived_pods_are_forecast_for_the_pool() -> None:
    series = {"shop/web-0": flat(300)}
    for number in range(DAYS):  # each day another pod of the CronJob
        days = np.full((DAYS, SLOTS), np.nan, dtype=np.float32)
        days[number] = 800
        series[f"shop/report-{number}-x"] = days
    series.pop(f"shop/report-{DAYS - 1}-x")
    last = np.full((1, SLOTS), 800, dtype=np.float32)
    series["shop/report-now-x"] = last
    job = a_pod("report-now-x", owner="report", owner_kind="CronJob", node="a", age=NOW - MIDNIGHT + 600)
    nodes = [a_node("a", cpu=4000), a_node("b", cpu=12_000)]
    result = forecasts(history(series), world(nodes, [a_pod("web-0", node="b", age=AGED), job]))
    assert result.pools[0].short_lived_peak_millicores == pytest.approx(800, rel=1e-3)
    # by capacity, not by where the last one happened to run
    assert result.nodes[1].parts.level == pytest.approx(900, rel=1e-3)  # 300 of web, 3/4 of 800


def test_a_declared_event_lifts_its_pool_while_it_lasts() -> None:
    past = history({"shop/web-0": flat(1000)})

    def with_event(begin: float, end: float, **fields: object) -> dict[str, object]:
        at = [np.datetime64(int(each), "s").item().isoformat() + "Z" for each in (begin, end)]
        return {"events": [{"name": "sale", "from": at[0], "to": at[1], "uplift": 50, **fields}]}

    ahead = MIDNIGHT + 3600
    lifted = the_forecast(past, ONE_POD, **with_event(ahead, ahead + DAY_SECONDS))
    assert lifted.peak_millicores == pytest.approx(1500)
    assert lifted.parts.events == ("sale",)
    assert lifted.peak_at >= ahead
    elsewhere = the_forecast(past, ONE_POD, **with_event(ahead, ahead + 86_400, pools=["other"]))
    assert elsewhere.peak_millicores == pytest.approx(1000)
    far = the_forecast(past, ONE_POD, **with_event(ahead + 2 * 86_400, ahead + 3 * 86_400))
    assert far.peak_millicores == pytest.approx(1000)
    short = the_forecast(past, ONE_POD, **with_event(ahead, ahead + 1800))
    assert short.peak_millicores == pytest.approx(1000)  # a P95 is blind to half an hour
    assert short.short_peak_millicores == pytest.approx(1500)
    # one that is over is taken out of the history again
    high = flat(1000)
    high[-2] = 1500
    yesterday = with_event(MIDNIGHT - 2 * 86_400, MIDNIGHT - 86_400)
    assert the_forecast(history({"shop/web-0": high}), ONE_POD, **yesterday).peak_millicores == pytest.approx(1000)


def test_a_short_daily_peak_shows_in_the_curve_and_in_its_hour() -> None:
    past_series = flat(200)
    past_series[:, 170:176] = 900  # 14:10 to 14:40 UTC
    past = history({"shop/web-0": past_series})
    found = the_forecast(past, ONE_POD)
    assert found.peak_millicores == pytest.approx(200)
    assert found.short_peak_millicores == pytest.approx(900)
    assert MIDNIGHT + 170 * STEP_SECONDS <= found.peak_at < MIDNIGHT + 176 * STEP_SECONDS
    assert found.profile[172] == pytest.approx(900)


def test_days_end_at_the_time_of_day_of_now_and_the_curve_stays_in_utc() -> None:
    series = flat(200)
    series[:, 100:130] = 800
    past = history({"shop/web-0": series})
    six = MIDNIGHT - DAY_SECONDS + 6 * 3600
    found = the_forecast(past, ONE_POD, now=six)
    assert found.parts.day_starts[-1] == six - DAY_SECONDS
    assert found.days_used == DAYS - 1  # of the first only a quarter is there
    assert MIDNIGHT - DAY_SECONDS + 101 * STEP_SECONDS <= found.peak_at < MIDNIGHT - DAY_SECONDS + 129 * STEP_SECONDS
    assert found.profile[110] == pytest.approx(800)


def test_the_same_weekday_can_count_more() -> None:
    past = history({"shop/web-0": flat(100, 900, 100, 100, 100, 100, 100, 100)})
    equal = {"weights": [1.0] * 8}
    plain = the_forecast(past, ONE_POD, predictor="weightedP95", dayWeights=equal)
    weekly = the_forecast(past, ONE_POD, predictor="weightedP95", dayWeights={**equal, "sameWeekday": 9.0})
    assert plain.parts.level == pytest.approx(200)
    assert weekly.parts.level == pytest.approx((7 * 100 + 9 * 900) / 16)


def test_terminating_pods_are_no_longer_part_of_their_node() -> None:
    past = history({"shop/web-0": flat(300), "shop/web-1": flat(300)})
    pods = [a_pod("web-0", **ON_A), a_pod("web-1", terminating=True, **ON_A)]
    assert the_forecast(past, world([a_node("a")], pods)).peak_millicores == pytest.approx(300)
    # nor is what they use taken for the node's own
    past = history({"shop/web-0": flat(300), "shop/web-1": flat(300)}, {"a": flat(650)})
    assert the_forecast(past, world([a_node("a")], pods)).peak_millicores == pytest.approx(350)
