"""How good forecasts were, from sums that the database made: the figures of `accuracy` that reports show."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.forecast.accuracy import LEAST, drift_sentence
from rebalancer.model.forecasts import ForecastSums

DAY_MINUTES = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """As in `accuracy.Scores`, by the same names. NaN: there are too few to tell."""

    count: int
    mae: float
    coverage: float
    hot_recall: float
    hot_precision: float
    peak_hour_error: float
    drift: str


def figures(
    sums: Sequence[ForecastSums],
    *,
    minutes_off: Sequence[Mapping[int, int]],
    recent: Sequence[ForecastSums],
    before: Sequence[ForecastSums],
) -> Figures:
    """Of all that is given together. For a drift: `recent`, of forecasts whose day ended in the last three days, and
    `before`, in the two weeks before."""
    count = sum(each.count for each in sums)
    hot, called = sum(each.hot for each in sums), sum(each.called_hot for each in sums)
    both = sum(each.both for each in sums)
    enough = count >= LEAST
    return Figures(
        count=count,
        mae=_mean(math.fsum(each.error for each in sums), count),
        coverage=_mean(sum(each.covered for each in sums), count),
        hot_recall=both / hot if enough and hot else math.nan,
        hot_precision=both / called if enough and called else math.nan,
        peak_hour_error=_median_hours(minutes_off),
        drift=drift_sentence(
            covered=_steadily_covered(recent),
            was_covered=_steadily_covered(before),
            error=_steady_error(recent),
            was_error=_steady_error(before),
        ),
    )


def _steadily_covered(sums: Sequence[ForecastSums]) -> float:
    return _mean(sum(each.steady_covered for each in sums), sum(each.steady_count for each in sums))


def _steady_error(sums: Sequence[ForecastSums]) -> float:
    return _mean(math.fsum(each.steady_error for each in sums), sum(each.steady_count for each in sums))


def _mean(total: float, count: int) -> float:
    return total / count if count >= LEAST else math.nan


def _median_hours(minutes_off: Sequence[Mapping[int, int]]) -> float:
    """The short way round the clock, to the minute."""
    times: Counter[int] = Counter()
    for pool in minutes_off:
        for apart, count in pool.items():
            times[min(apart % DAY_MINUTES, DAY_MINUTES - apart % DAY_MINUTES)] += count
    total = times.total()
    if total < LEAST:
        return math.nan
    return (_at(times, (total - 1) // 2) + _at(times, total // 2)) / 2 / 60


def _at(times: Counter[int], rank: int) -> int:
    """The value at that place of all in order."""
    seen = 0
    for value in sorted(times):
        seen += times[value]
        if seen > rank:
            return value
    raise AssertionError("no rank is beyond the last")
