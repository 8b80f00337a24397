"""What came of a forecast, by hand: the percentile, the busiest quarter, who left, and what it would have been."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.forecast.evaluation.actuals import NOTHING_KNOWN, WAIT_SECONDS, Samples, verify
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast, Verdict
from tests.builders import an_eviction
from tests.forecast.builders import a_stored_forecast

DAY = 20_000
MADE = DAY * DAY_SECONDS + 6 * 3600.0
"""At six; the forecast speaks of the 24 hours from then."""
OVER = MADE + DAY_SECONDS
STEP = float(STEP_SECONDS)
HIGH, CAPACITY = 0.75, 4000.0
LIMIT = 3000.0

Levels = Mapping[int, float]
"""Step of the forecast (0 is six o'clock) -> millicores; each holds until the next."""


def at(step: float) -> float:
    return MADE + step * STEP


def a_forecast(**fields: Any) -> StoredForecast:
    pods = (("aaaaaaaa", 0.5), ("bbbbbbbb", 0.3), ("cccccccc", 0.15))
    peak = {"peak_millicores": 3200.0, "peak_at": at(48), "margin_millicores": 200.0, "hot_from": at(48)}
    return a_stored_forecast(MADE, **{"kind": ForecastKind.AHEAD, "pods": pods, **peak, **fields})


def series(levels: Levels) -> np.ndarray:
    """(2 days,) with the forecast's steps in the middle and 9999 before and after them, which nobody may look at."""
    out = np.full(2 * SLOTS, 9999.0, dtype=np.float32)
    begin, end = 72, 72 + SLOTS
    for step, level in sorted(levels.items()):
        out[begin + step : end] = level
    return out


def blocks(
    nodes: Mapping[str, Levels], pods: Mapping[str, Levels] | None = None, *, filled: int = SLOTS
) -> list[DayBlock]:
    """Two days; the second, today, was asked for up to `filled`."""
    pods = pods or {}
    node_rows, pod_rows = ([series(levels) for levels in each.values()] for each in (nodes, pods))
    return [
        DayBlock(
            day=DAY + day,
            nodes=tuple(nodes),
            node_millicores=np.array([row[day * SLOTS :][:SLOTS] for row in node_rows]).reshape(-1, SLOTS),
            pods=tuple(pods),
            pod_millicores=np.array([row[day * SLOTS :][:SLOTS] for row in pod_rows]).reshape(-1, SLOTS),
            complete=day == 0 or filled == SLOTS,
            filled=filled if day else SLOTS,
        )
        for day in (0, 1)
    ]


def actuals(
    node: Levels,
    *,
    forecast: StoredForecast | None = None,
    pods: Mapping[str, Levels] | None = None,
    pods_now: frozenset[str] | None = None,
    moved: Sequence[Eviction] = (),
    now: float = OVER + 900.0,
    filled: int = SLOTS,
    days: Sequence[DayBlock] | None = None,
) -> Actuals | None:
    forecast = forecast or a_forecast()
    samples = Samples.of(
        days if days is not None else blocks({"n1": node, "other": {0: 5000.0}}, pods, filled=filled),
        nodes=["n1"],
        pods=[each.replacement for each in moved],
        since=forecast.made_at,
        until=forecast.until,
    )
    return verify(forecast, samples, pods_now=pods_now, moved=moved, now=now)


def moved_at(step: float, replacement: str = "web-2", cpu: float = 400.0) -> Eviction:
    return an_eviction(pod="web-1", replacement_pod=replacement, planned_at=at(step), cpu_millicores=cpu)


# ---- figures
GAP: Levels = {0: 1000.0, 98: math.nan, 100: 3000.0, 103: 1000.0}


def test_the_percentile_is_of_the_forecasts_own_day() -> None:
    """288 values, 15 of them 3000: the 95th percentile lies at place 272.65, between 1000 and 3000."""
    came = actuals({0: 1000.0, 100: 3000.0, 115: 1000.0})
    assert came is not None
    assert came.p95_millicores == pytest.approx(1000 + 0.65 * 2000)


@pytest.mark.parametrize(
    ("levels", "peak", "slot"),
    [
        ({0: 1000.0, 100: 2400.0, 101: 3000.0, 102: 2700.0, 103: 1000.0, 200: 2690.0, 203: 500.0}, 2700.0, 101),
        ({0: 1000.0, 100: 3000.0, 101: 1000.0, 200: 1800.0, 203: 1000.0}, 1800.0, 201),
        ({**GAP, 101: 2000.0, 102: math.nan}, 2500.0, 100),
        ({**GAP, 101: math.nan}, 1000.0, None),
    ],
    ids=["its middle", "a spike of one step is none", "one of three steps may miss", "but not two"],
)
def test_the_busiest_quarter_is_three_steps_and_is_where_its_middle_is(
    levels: Levels, peak: float, slot: int | None
) -> None:
    came = actuals(levels)
    assert came is not None
    assert came.peak_millicores == peak
    assert slot is None or came.peak_at == at(slot)


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        pytest.param(frozenset({"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"}), 0.0, id="all there, and one more"),
        pytest.param(frozenset({"aaaaaaaa", "cccccccc"}), 0.3, id="one left"),
        pytest.param(frozenset(), 0.95, id="all left; the rest was no pod's"),
        pytest.param(None, math.nan, id="nobody looked"),
    ],
)
def test_what_changed_is_the_share_of_the_peak_that_left(now: frozenset[str] | None, changed: float) -> None:
    came = actuals({0: 1000.0}, pods_now=now)
    assert came is not None
    assert came.departed_peak_share == pytest.approx(changed, nan_ok=True)


def test_a_forecast_that_names_no_pods_does_not_tell_what_changed() -> None:
    came = actuals({0: 1000.0}, forecast=a_forecast(pods=()), pods_now=frozenset({"aaaaaaaa"}))
    assert came is not None
    assert math.isnan(came.departed_peak_share)


def test_shares_that_add_up_to_more_than_the_peak_are_all_of_it() -> None:
    """What a peak loses with each of two pods that peak together is more than what it loses with both."""
    came = actuals({0: 1000.0}, forecast=a_forecast(pods=(("a", 0.8), ("b", 0.6))), pods_now=frozenset())
    assert came is not None
    assert came.departed_peak_share == 1.0


# ---- without us


@pytest.mark.parametrize(
    ("pods", "moved", "expected"),
    [
        pytest.param({}, [], 2400.0, id="nothing moved: the node itself"),
        pytest.param({"shop/web-2": {0: 700.0}}, [moved_at(50)], 2400.0 + 700.0, id="moved before the peak"),
        pytest.param({"shop/web-2": {0: 700.0}}, [moved_at(110)], 2400.0, id="moved after the peak, still lower"),
        pytest.param({"shop/web-2": {0: 9000.0, 50: 700.0}}, [moved_at(50)], 3100.0, id="not before the move"),
        pytest.param(
            {"shop/web-2": {0: 700.0}}, [moved_at(103.5)], 2400.0 + 1400.0 / 3, id="from the first whole step after it"
        ),
        pytest.param({}, [moved_at(50)], 2400.0 + 400.0, id="no sample of it: what it used when it was moved"),
        pytest.param({}, [moved_at(50, "")], 2400.0 + 400.0, id="replacement not known"),
        pytest.param(
            {"shop/web-2": {0: math.nan, 100: 700.0, 101: math.nan, 102: 700.0, 103: math.nan}},
            [moved_at(50)],
            2400.0 + (700.0 + 400.0 + 700.0) / 3,
            id="gaps are filled with what it used",
        ),
        pytest.param(
            {"shop/web-2": {0: 700.0}, "shop/web-3": {0: 200.0}},
            [moved_at(50), moved_at(60, "web-3")],
            2400.0 + 900.0,
            id="each counts",
        ),
        pytest.param({}, [moved_at(50, "", math.nan)], math.nan, id="nothing known of one"),
        pytest.param({"shop/web-2": {0: 700.0}}, [moved_at(50, cpu=math.nan)], 3100.0, id="its samples are enough"),
        pytest.param({"shop/web-2": {0: 700.0}}, [moved_at(-1)], 2400.0, id="moved before the forecast: not in it"),
        pytest.param({"shop/web-2": {0: 700.0}}, [moved_at(288)], 2400.0, id="moved after its end"),
    ],
)
def test_without_us_the_moved_pods_would_still_be_there(
    pods: Mapping[str, Levels], moved: Sequence[Eviction], expected: float
) -> None:
    """A node at 1000, and at 2400 for half an hour from step 100 on."""
    came = actuals({0: 1000.0, 100: 2400.0, 106: 1000.0}, pods=pods, moved=moved)
    assert came is not None
    assert came.counterfactual_peak_millicores == pytest.approx(expected, nan_ok=True)


# ---- verdicts: expected to be hot (over 3000) from step 48 on

COOL: Levels = {0: 1000.0, 48: 2800.0, 60: 1000.0}
HOT: Levels = {0: 1000.0, 48: 3100.0, 60: 1000.0}
HEAVY = {"shop/web-2": {0: 300.0}}
LIGHT = {"shop/web-2": {0: 100.0}}


@pytest.mark.parametrize(
    ("node", "pods", "moved", "verdict"),
    [
        pytest.param(COOL, HEAVY, [moved_at(24)], Verdict.PREVENTED, id="3100 without us"),
        pytest.param(COOL, LIGHT, [moved_at(24)], Verdict.FALSE_ALARM, id="2900 without us"),
        pytest.param(COOL, {"shop/web-2": {0: 200.0}}, [moved_at(24)], Verdict.FALSE_ALARM, id="3000 is not over 3000"),
        pytest.param(COOL, {}, [], Verdict.FALSE_ALARM, id="nothing moved, not hot"),
        pytest.param(HOT, HEAVY, [moved_at(24)], Verdict.TOO_LATE, id="moved, and hot"),
        pytest.param(HOT, HEAVY, [moved_at(100)], Verdict.TOO_LATE, id="moved when it had been hot already"),
        pytest.param(HOT, {}, [], Verdict.NOT_MOVED, id="hot, nothing moved"),
        pytest.param(HOT, {}, [moved_at(-1), moved_at(288)], Verdict.NOT_MOVED, id="hot, moved before and afterwards"),
        pytest.param({0: 3000.0}, {}, [], Verdict.FALSE_ALARM, id="at high is not over it"),
        pytest.param({0: 1000.0, 200: 3100.0}, {}, [], Verdict.NOT_MOVED, id="hot much later is hot"),
        pytest.param(
            {0: 1000.0, 42: 3100.0, 45: 900.0}, {}, [], Verdict.NOT_MOVED, id="half an hour early is the peak"
        ),
        pytest.param({0: 1000.0, 39: 3100.0, 42: 900.0}, {}, [], Verdict.FALSE_ALARM, id="earlier is something else"),
        pytest.param({0: 1000.0, 48: 4000.0, 49: 1000.0}, {}, [], Verdict.FALSE_ALARM, id="five minutes are not hot"),
        pytest.param({0: 2800.0}, HEAVY, [moved_at(286)], Verdict.FALSE_ALARM, id="too little of it was moved in time"),
        pytest.param({0: 1000.0, 48: math.nan, 200: 1000.0}, {}, [], None, id="no samples at the peak"),
        pytest.param({0: 1000.0, 48: 3100.0, 60: math.nan, 200: 1.0}, {}, [], Verdict.NOT_MOVED, id="hot is hot"),
        pytest.param(COOL, {}, [moved_at(24, "", math.nan)], None, id="nobody knows what it would have been"),
    ],
)
def test_verdicts(node: Levels, pods: Mapping[str, Levels], moved: Sequence[Eviction], verdict: Verdict | None) -> None:
    came = actuals(node, pods=pods, moved=moved)
    assert came is not None
    assert came.verdict is verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        pytest.param({"kind": ForecastKind.DAILY}, None, id="nobody acted on it"),
        pytest.param({"high": None}, None, id="what is hot isn't fixed"),
        pytest.param({"capacity_millicores": math.nan}, None, id="how large the node is isn't known"),
        pytest.param({"hot_from": None}, Verdict.NOT_MOVED, id="at any time"),
        pytest.param({"hot_from": at(3)}, Verdict.NOT_MOVED, id="half an hour early would be before it was made"),
        pytest.param({"hot_from": at(100)}, Verdict.FALSE_ALARM, id="expected hours later"),
        pytest.param({"hot_from": at(400)}, None, id="expected after its end"),
    ],
)
def test_a_verdict_is_of_the_peak_that_was_expected(fields: Mapping[str, Any], verdict: Verdict | None) -> None:
    came = actuals(HOT, forecast=a_forecast(**fields))
    assert came is not None
    assert came.verdict is verdict
    assert came.peak_millicores == pytest.approx(3100.0)


# ---- samples that are missing


def same(came: Actuals | None, other: Actuals) -> bool:
    """NaN is not equal to itself."""
    return repr(came) == repr(other)


def test_while_steps_are_still_to_be_read_there_is_no_message() -> None:
    """Today was asked for up to step 71 of 72."""
    assert actuals(HOT, filled=71) is None
    assert actuals(HOT, filled=71, now=OVER + WAIT_SECONDS - 1) is None
    assert actuals(HOT, filled=72) is not None


def test_steps_that_were_not_read_in_two_days_are_given_up() -> None:
    came = actuals(HOT, filled=71, now=OVER + WAIT_SECONDS)
    assert came is not None
    assert came.verdict is Verdict.NOT_MOVED


@pytest.mark.parametrize("days", [[], blocks({"n1": HOT})[:1], blocks({"n1": HOT})[1:]], ids=["none", "first", "last"])
def test_a_day_that_is_missing_is_waited_for(days: list[DayBlock]) -> None:
    assert actuals({}, days=days) is None
    late = actuals({}, days=days, now=OVER + WAIT_SECONDS)
    assert late is not None
    # 216 of 288 steps lie in the first day
    assert math.isnan(late.p95_millicores) == (days == [] or days[0].day == DAY + 1)


@pytest.mark.parametrize(("known", "enough"), [(144, True), (143, False)])
def test_half_of_the_steps_must_be_known(known: int, *, enough: bool) -> None:
    came = actuals({0: 1000.0, known: math.nan}, pods_now=frozenset())
    assert came is not None
    assert same(came, NOTHING_KNOWN) is not enough


def test_of_a_node_without_samples_nothing_is_known() -> None:
    assert same(actuals({}, days=blocks({"other": HOT}), pods_now=frozenset()), NOTHING_KNOWN)


def test_a_forecast_that_speaks_of_no_time_is_nothing() -> None:
    assert same(actuals(HOT, forecast=a_forecast(until=MADE)), NOTHING_KNOWN)


# ---- reading


class Lazy(Sequence[DayBlock]):
    """Days on disk: remembers which were loaded."""

    def __init__(self, days: Sequence[DayBlock]) -> None:
        self._all = days
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        self.loaded.append(self._all[index].day)
        return self._all[index]


def test_no_day_is_loaded_that_the_forecast_does_not_speak_of() -> None:
    empty = np.empty((0, SLOTS), dtype=np.float32)
    older = [
        DayBlock(day=DAY - back, pods=(), pod_millicores=empty, nodes=(), node_millicores=empty) for back in (3, 2, 1)
    ]
    lazy = Lazy([*older, *blocks({"n1": HOT})])
    assert actuals({}, days=lazy) is not None
    assert lazy.loaded == [DAY + 1, DAY]


def test_a_day_that_was_read_is_not_held_by_what_was_taken_from_it() -> None:
    samples = Samples.of(blocks({"n1": HOT}), nodes=["n1"], pods=[], since=MADE, until=OVER)
    assert [part.nodes["n1"].base is None for part in samples.days.values()] == [True, True]
