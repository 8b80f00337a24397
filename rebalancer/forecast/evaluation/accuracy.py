"""Accuracy and drift of forecasts, by pool.

Figures come from `ForecastSums`, computed by the database for reports and by `sums_of` in memory. Errors are shares of
capacity. Only daily forecasts are scored: those that started a cycle are biased to high values, so they count by their
verdicts alone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.figures import percent
from rebalancer.model.records.forecasts import TOLERANCE, ForecastKind, ForecastSums, Verdict, VerifiedForecast

LEAST = 20
"""Figures of fewer forecasts are NaN."""
UNCHANGED_SHARE = 0.05
"""Most departed share of a node's peak with which its pods count as unchanged."""
RECENT_SECONDS, BEFORE_SECONDS = 3 * DAY_SECONDS, 14 * DAY_SECONDS
LOOKS_BACK_SECONDS = RECENT_SECONDS + BEFORE_SECONDS + DAY_SECONDS
"""Oldest forecasts that a drift needs."""
LESS_COVERED = 0.15
TIMES_THE_ERROR = 2.0
LEAST_DRIFT_ERROR = 0.01
"""Least error of a drift."""
DAY_MINUTES = 1440


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of one pool, or of all. NaN: fewer than LEAST forecasts."""

    count: int
    """Forecasts with actuals."""
    mae: float
    """Mean absolute error of the P95 before its margin, as a share of capacity."""
    coverage: float
    """Share of days at or under the forecast with its margin."""
    hot_days: int
    """Days with a P95 over `high`. This and the next three figures exclude relieved days, whose counterfactual peak is
    above the actual one."""
    called_hot: int
    """Days predicted as hot."""
    hot_recall: float
    """Share of the hot days that were predicted."""
    hot_precision: float
    """Share of the predicted hot days that were hot."""
    peak_hour_error: float
    """Median hours between the predicted and the actual busiest quarter of an hour, modulo a day."""
    drift: str
    """A sentence if the last 3 days were clearly worse than the 14 before, else empty."""

    @property
    def enough(self) -> bool:
        """Whether the forecasts suffice for figures."""
        return self.count >= LEAST


@dataclass(frozen=True, kw_only=True)
class Scores(Figures):
    """Figures with those that need the single forecasts."""

    unknown: int
    """Forecasts without actuals."""
    under: float
    """Mean underestimation."""
    over: float
    """Mean overestimation; `mae` is the sum of both."""
    relieved: int
    """Relieved days with a `high`."""
    unchanged_share: float
    """Share of the nodes with known departures whose pods were unchanged."""
    unchanged_mae: float
    """`mae` of the unchanged nodes."""
    verdicts: Mapping[Verdict, int]
    """Verdict -> forecasts that started a cycle; contains every verdict."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Scores of all forecasts and by pool."""

    everything: Scores
    pools: Mapping[str, Scores]
    """By name; empty for nodes in no pool."""


def accuracy(verified: Sequence[VerifiedForecast], *, since: float, now: float) -> Accuracy:
    """Score the forecasts made at or after `since`. A drift is of the last 18 days."""
    names = sorted({each.forecast.pool for each in verified})
    pools = {name: [each for each in verified if each.forecast.pool == name] for name in names}
    scored = {name: _scores(members, since=since, now=now) for name, members in pools.items()}
    return Accuracy(
        everything=_scores(verified, since=since, now=now),
        pools={
            name: each for name, each in scored.items() if each.count or each.unknown or any(each.verdicts.values())
        },
    )


def figures(
    sums: Sequence[ForecastSums],
    *,
    minutes_off: Sequence[Mapping[int, int]],
    recent: Sequence[ForecastSums],
    before: Sequence[ForecastSums],
) -> Figures:
    """Figures of all sums. For the drift: `recent`, forecasts whose day ended in the last three days, and `before`, in
    the two weeks before."""
    count = sum(each.count for each in sums)
    hot, called = sum(each.hot for each in sums), sum(each.called_hot for each in sums)
    both = sum(each.both for each in sums)
    enough = count >= LEAST
    return Figures(
        count=count,
        mae=_mean(math.fsum(each.error for each in sums), count),
        coverage=_mean(sum(each.covered for each in sums), count),
        hot_days=hot,
        called_hot=called,
        hot_recall=both / hot if enough and hot else math.nan,
        hot_precision=both / called if enough and called else math.nan,
        peak_hour_error=_median_hours(minutes_off),
        drift=_drift(_steady(recent), _steady(before)),
    )


def sums_of(verified: Iterable[VerifiedForecast], *, pool: str = "") -> ForecastSums:
    """The sums of daily forecasts with actuals, as in `store.forecast_sums`."""
    known = [(each, abs(error)) for each in verified if math.isfinite(error := _error(each))]
    steady = [(each, error) for each, error in known if _is_steady(each)]
    hot = [_over_high(each, each.actuals.p95_millicores) for each, _ in steady]
    called = [_over_high(each, each.forecast.peak_millicores) for each, _ in steady]
    return ForecastSums(
        pool=pool,
        count=len(known),
        error=math.fsum(error for _, error in known),
        covered=sum(_is_covered(each) for each, _ in known),
        steady_count=len(steady),
        steady_error=math.fsum(error for _, error in steady),
        steady_covered=sum(_is_covered(each) for each, _ in steady),
        hot=sum(hot),
        called_hot=sum(called),
        both=sum(one and other for one, other in zip(hot, called, strict=True)),
    )


def _scores(verified: Sequence[VerifiedForecast], *, since: float, now: float) -> Scores:
    daily = [each for each in verified if each.forecast.kind is ForecastKind.DAILY]
    counted = [each for each in daily if each.forecast.made_at >= since]
    known = [each for each in counted if math.isfinite(_error(each))]
    checked = [each for each in known if math.isfinite(each.actuals.departed_peak_share)]
    unchanged = [each for each in checked if each.actuals.departed_peak_share <= UNCHANGED_SHARE]
    errors = [_error(each) for each in known]
    ages = [(each, now - each.forecast.until) for each in daily]
    shown = figures(
        [sums_of(known)],
        minutes_off=[Counter(_minutes_off(known))],
        recent=[sums_of(each for each, age in ages if age < RECENT_SECONDS)],
        before=[sums_of(each for each, age in ages if RECENT_SECONDS <= age < RECENT_SECONDS + BEFORE_SECONDS)],
    )
    verdicts = Counter(each.actuals.verdict for each in verified if each.forecast.made_at >= since)
    return Scores(
        **{each.name: getattr(shown, each.name) for each in fields(Figures)},
        unknown=len(counted) - len(known),
        under=_mean(math.fsum(max(error, 0.0) for error in errors), len(errors)),
        over=_mean(math.fsum(max(-error, 0.0) for error in errors), len(errors)),
        relieved=sum(each.forecast.high is not None and not _is_steady(each) for each in known),
        unchanged_share=_mean(len(unchanged), len(checked)),
        unchanged_mae=_mean(math.fsum(abs(_error(each)) for each in unchanged), len(unchanged)),
        verdicts={verdict: verdicts[verdict] for verdict in Verdict},
    )


def _steady(sums: Sequence[ForecastSums]) -> tuple[float, float]:
    """(coverage, mean error) without relieved days, whose forecasts are too high because of our evictions."""
    count = sum(each.steady_count for each in sums)
    covered = sum(each.steady_covered for each in sums)
    return _mean(covered, count), _mean(math.fsum(each.steady_error for each in sums), count)


def _drift(recent: tuple[float, float], before: tuple[float, float]) -> str:
    """Figures that are clearly worse in the last three days; empty without any, and where unknown (NaN)."""
    (covered, error), (was_covered, was_error) = recent, before
    found = []
    if covered <= was_covered - LESS_COVERED + TOLERANCE:
        found.append(f"{covered:.0%} of the last 3 days stayed at or under the forecast, {was_covered:.0%} before")
    if error >= max(TIMES_THE_ERROR * was_error - TOLERANCE, LEAST_DRIFT_ERROR):
        found.append(f"the error of the last 3 days is {percent(error)} of capacity, {percent(was_error)} before")
    return "; ".join(found)


def _error(each: VerifiedForecast) -> float:
    """(actual - forecast before its margin) / capacity; NaN where unknown."""
    forecast, capacity = each.forecast, each.forecast.capacity_millicores
    expected = forecast.peak_millicores - forecast.margin_millicores
    return (each.actuals.p95_millicores - expected) / capacity if capacity > 0 else math.nan


def _is_covered(each: VerifiedForecast) -> bool:
    forecast = each.forecast
    return each.actuals.p95_millicores <= forecast.peak_millicores + TOLERANCE * forecast.capacity_millicores


def _is_steady(each: VerifiedForecast) -> bool:
    """Whether the day is not relieved; with an unknown counterfactual (NaN) it counts as relieved."""
    return each.actuals.counterfactual_peak_millicores <= each.actuals.peak_millicores * (1 + TOLERANCE)


def _over_high(each: VerifiedForecast, millicores: float) -> bool:
    high = each.forecast.high
    return high is not None and millicores > high * each.forecast.capacity_millicores


def _minutes_off(verified: Iterable[VerifiedForecast]) -> Iterable[int]:
    for each in verified:
        apart = abs(each.forecast.peak_at - each.actuals.peak_at)
        if math.isfinite(apart):
            yield int(apart) // 60


def _mean(total: float, count: int) -> float:
    return total / count if count >= LEAST else math.nan


def _median_hours(minutes_off: Sequence[Mapping[int, int]]) -> float:
    """Median difference modulo a day, to the minute."""
    times: Counter[int] = Counter()
    for pool in minutes_off:
        for apart, count in pool.items():
            times[min(apart % DAY_MINUTES, DAY_MINUTES - apart % DAY_MINUTES)] += count
    return median(sorted(times.elements())) / 60 if times.total() >= LEAST else math.nan
