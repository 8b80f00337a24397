"""The time of a node's peak: the vote of the days, its interval, and what they are in a forecast."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.forecast.peaks.peak_time import PeakSlots, peak_slots
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS
from tests.builders import a_node, a_pod
from tests.forecast.builders import AGED, DAYS, MIDNIGHT, flat, forecasts, history, the_forecast, world

HOUR = 12
"""Slots."""


def peaks_at(*slots: int, height: float = 500.0) -> np.ndarray:
    """(1, days, 288) days of 100 millicores with a quarter of an hour at `height` around a slot, the oldest first."""
    series = np.full((1, len(slots), SLOTS), 100.0, dtype=np.float32)
    for day, slot in enumerate(slots):
        series[0, day, [slot - 1, slot, (slot + 1) % SLOTS]] = height
    return series


def the_peak(series: np.ndarray) -> tuple[int, int, int]:
    found = peak_slots(series)
    return int(found.slot[0]), int(found.first[0]), int(found.last[0])


def test_the_hour_of_most_days_goes_before_the_hour_of_the_highest() -> None:
    series = peaks_at(100, 102, 99, 101, 100, 98, 101, 200)
    series[0, -1, 199:202] = 5_000  # yesterday at another time, ten times as high
    slot, first, last = the_peak(series)
    assert abs(slot - 100) <= 2
    # yesterday has 19% of the votes: the other days hold 80%
    assert (first, last) == (97, 103)
    # two days ago and yesterday have 35%: one of them is taken in
    slot, first, last = the_peak(peaks_at(100, 102, 99, 101, 100, 98, 110, 200))
    assert (first, last) == (97, 111)
    assert first < slot < last


def test_newer_days_and_the_same_weekday_count_more() -> None:
    # ages 7..4 weigh 2.1 with the half of the same weekday, 3..0 weigh 3.2
    assert the_peak(peaks_at(50, 50, 50, 50, 200, 200, 200, 200))[0] == 200
    # two days against two: ages 6 and 5 weigh 1.27, ages 4 and 3 weigh 1.09; without the weekday 0.77
    series = peaks_at(10, 50, 50, 200, 200, 90, 130, 250)
    series[0, [0, 5, 6, 7]] = np.nan
    assert the_peak(series)[0] == 50


def test_the_day_is_cyclic() -> None:
    slot, first, last = the_peak(peaks_at(286, 2, 286, 2, 286, 2, 286, 2))
    assert slot in (286, 287, 0, 1, 2)
    assert last - first == 4 + 2
    assert (first % SLOTS, last % SLOTS) == (285, 3)


def test_a_day_with_less_than_half_of_its_steps_has_no_vote() -> None:
    series = peaks_at(*[100] * 7, 250)
    series[0, -1, :150] = np.nan
    assert the_peak(series) == (100, 99, 101)
    series[:] = np.nan
    assert the_peak(series) == (-1, -1, -1)
    assert peak_slots(np.zeros((0, DAYS, SLOTS), dtype=np.float32)).slot.shape == (0,)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), turn=st.integers(0, SLOTS - 1))
def test_a_turned_day_has_its_peak_turned_and_nodes_do_not_matter_to_each_other(seed: int, turn: int) -> None:
    random = np.random.default_rng(seed)
    series = random.gamma(2, 100, (5, DAYS, SLOTS)).astype(np.float32)
    series[random.random(series.shape) < 0.02] = np.nan
    found, turned = peak_slots(series), peak_slots(np.roll(series, turn, axis=2))
    assert turned.slot.tolist() == ((found.slot + turn) % SLOTS).tolist()
    assert (turned.last - turned.first).tolist() == (found.last - found.first).tolist()
    alone = [peak_slots(series[row : row + 1]) for row in range(5)]
    for name in PeakSlots.__slots__:
        assert np.concatenate([getattr(each, name) for each in alone]).tolist() == getattr(found, name).tolist()
    assert (found.first <= found.slot).all()
    assert (found.slot <= found.last).all()


def test_the_hour_is_found_more_often_than_yesterdays() -> None:
    # peaks two hours around 10:00 on most days, at any hour on the others
    random = np.random.default_rng(7)
    nodes, days = 400, 9
    hour = np.where(random.random((nodes, days)) < 0.7, 120 + random.normal(0, HOUR, (nodes, days)), 0)
    hour = np.where(hour == 0, random.uniform(0, SLOTS, (nodes, days)), hour).astype(int) % SLOTS
    series = np.concatenate([peaks_at(*row) for row in hour.tolist()])
    series += random.normal(0, 20, series.shape).astype(np.float32)

    def hits(slots: np.ndarray) -> float:
        apart = np.abs(slots - hour[:, -1])
        return float((np.minimum(apart, SLOTS - apart) <= HOUR).mean())

    found = peak_slots(series[:, :-1])
    assert hits(found.slot) >= 1.3 * hits(hour[:, -2])
    inside = (hour[:, -1] >= found.first) & (hour[:, -1] <= found.last)
    assert inside.mean() >= 0.6


def test_a_forecast_has_the_time_of_most_days_and_its_interval() -> None:
    # at 14:00 UTC for a week; yesterday at 03:00, higher
    series = flat(200)
    series[:, 168:171] = 900
    series[-1, 168:171], series[-1, 36:39] = 200, 1_000
    found = the_forecast(
        history({"shop/web-0": series}), world([a_node("a")], [a_pod("web-0", node="a", age=AGED)]), now=MIDNIGHT
    )
    assert found.peak_at == MIDNIGHT + 169 * STEP_SECONDS
    # 19% of the votes are for 03:00
    assert found.peak_from == MIDNIGHT + 168 * STEP_SECONDS
    assert found.peak_until == MIDNIGHT + 171 * STEP_SECONDS


def test_the_interval_lies_within_the_horizon() -> None:
    series = flat(200)
    series[::2, 284:287], series[1::2, 1:4] = 900, 900
    past, snapshot = history({"shop/web-0": series}), world([a_node("a")], [a_pod("web-0", node="a", age=AGED)])
    found = the_forecast(past, snapshot)
    assert MIDNIGHT <= found.peak_from <= found.peak_at < found.peak_until <= MIDNIGHT + SLOTS * STEP_SECONDS
    unknown = forecasts(past, world([a_node("b"), a_node("a")], [a_pod("web-0", node="a", age=AGED)])).nodes[0]
    assert np.isnan([unknown.peak_at, unknown.peak_from, unknown.peak_until]).all()
