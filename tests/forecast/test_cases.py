"""Cases with the numbers that forecasts must reach: the day after a weekend, level shifts, few days, new services."""

import numpy as np
import pytest

from rebalancer.forecast import Forecasts
from rebalancer.forecast.percentiles import P95, quantile
from rebalancer.model.history import SLOTS, History
from rebalancer.model.snapshot import ClusterSnapshot
from tests.builders import a_node, a_pod
from tests.forecast.builders import AGED, MIDNIGHT, forecasts, history, the_forecast, world

HOUR = 3600.0
OFFICE = np.clip(np.sin((np.arange(SLOTS) / SLOTS * 24 - 7) / 11 * np.pi), 0, None)
"""Seven to eighteen o'clock."""


def of_nodes(*series: np.ndarray) -> tuple[History, ClusterSnapshot]:
    """One pod a node, each of a service of its own; (days, 288) each."""
    names = [f"n{number:02d}" for number in range(len(series))]
    past = history({f"shop/{name}-0": each.astype(np.float32) for name, each in zip(names, series, strict=True)})
    return past, world(
        [a_node(name, cpu=64_000) for name in names],
        [a_pod(f"{name}-0", owner=name, node=name, age=AGED) for name in names],
    )


def p95(day: np.ndarray) -> float:
    return float(quantile(day[None].astype(np.float32), P95)[0])


def business(days: str, seed: int = 1, rest: float = 739, work: float = 2040) -> np.ndarray:
    """A day for each letter: `w` a workday with a P95 of about `work`, `r` a rest day with one of `rest`."""
    random = np.random.default_rng(seed)
    rows = [
        (600 + OFFICE * (work - 600) / p95(OFFICE) if kind == "w" else np.full(SLOTS, rest)) * random.normal(1, 0.02)
        for kind in days
    ]
    return np.array(rows) * random.normal(1, 0.01, (len(rows), SLOTS))


def calm(seed: int, days: int = 9, level: float = 1000) -> np.ndarray:
    return level * np.random.default_rng(seed).normal(1, 0.03, (days, SLOTS))


@pytest.mark.parametrize("others", [0, 6])
@pytest.mark.parametrize("hours_before_midnight", [0, 3, 6])
def test_18_3_on_sunday_evening_monday_is_forecast_within_ten_percent(others: int, hours_before_midnight: int) -> None:
    past, snapshot = of_nodes(business("rrwwwwwrr"), *(calm(10 + number) for number in range(others)))
    found = forecasts(past, snapshot, now=MIDNIGHT - hours_before_midnight * HOUR).nodes
    assert found[0].parts.daily_p95[-1] == pytest.approx(739, rel=0.05)
    assert 1836 <= found[0].peak_millicores <= 2244
    for each in found[1:]:
        assert each.peak_millicores == pytest.approx(1050, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("days", ["wwwwwrr", "rwwwwwrr", "rrwwwwrrr"])
def test_18_3_a_forecast_after_rest_days_is_not_below_the_same_weekday_last_week(seed: int, days: str) -> None:
    random = np.random.default_rng(seed)
    work, rest = random.uniform(800, 4000), random.uniform(50, 500)
    past, snapshot = of_nodes(business(days, seed, rest, work), business("wwwwwww", seed + 1), calm(seed, 7))
    found = the_forecast(past, snapshot)
    assert found.peak_millicores >= found.parts.daily_p95[1] * 0.999


def shifted(share: float, hours: int, *, nodes: int = 20) -> tuple[Forecasts, Forecasts]:
    """Forecasts of nodes of 1,000 m: without a change, and with one of the first node by `share` for some hours."""
    series = [calm(20 + number) for number in range(nodes)]
    before = forecasts(*of_nodes(*series))
    changed = series[0].copy().reshape(-1)
    changed[len(changed) - hours * SLOTS // 24 :] *= share
    return before, forecasts(*of_nodes(changed.reshape(-1, SLOTS), *series[1:]))


@pytest.mark.parametrize("hours", [6, 9, 12, 24])
def test_18_4_a_level_shift_of_one_node_of_twenty_is_followed_within_six_hours(hours: int) -> None:
    before, after = shifted(2.05, hours)
    assert after.nodes[0].peak_millicores == pytest.approx(2050, rel=0.1)
    for mine, theirs in zip(before.nodes[1:], after.nodes[1:], strict=True):
        assert theirs.peak_millicores == pytest.approx(mine.peak_millicores, rel=0.02)


@pytest.mark.parametrize("hours", [6, 12])
def test_18_4_a_fall_of_the_level_is_not_followed_at_once(hours: int) -> None:
    before, after = shifted(0.4, hours)
    assert after.nodes[0].peak_millicores >= 0.8 * before.nodes[0].peak_millicores


KINDS = ("noise", "walks", "weeks", "growth", "bursts")


def random_nodes(seed: int, days: int, kinds: tuple[str, ...] = KINDS) -> list[np.ndarray]:
    """100 nodes of some kinds; (days, 288) each."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(100):
        level = random.lognormal(7, 0.6)
        course = 1 + random.uniform(0, 0.6) * np.sin(np.arange(SLOTS) / SLOTS * 2 * np.pi + random.uniform(0, 6))
        kind = kinds[number % len(kinds)]
        if kind == "noise":
            of_days = random.lognormal(0, 0.15, days)
        elif kind == "walks":
            of_days = np.exp(np.cumsum(random.normal(0, 0.1, days)))
        elif kind == "weeks":
            of_days = np.where((np.arange(days) + number // len(kinds)) % 7 < 5, 1.0, random.uniform(0.3, 0.9))
            of_days *= random.lognormal(0, 0.05, days)
        elif kind == "growth":
            of_days = 1 + random.uniform(-0.03, 0.05) * np.arange(days)
        else:
            of_days = random.lognormal(0, 0.04, days) * np.where(random.random(days) < 0.15, 1.6, 1.0)
        found.append(level * of_days[:, None] * course * random.lognormal(0, 0.05, (days, SLOTS)))
    return found


def covered(seed: int, days: int, kinds: tuple[str, ...] = KINDS) -> np.ndarray:
    """(nodes,) whether the day after `days` known days is covered."""
    series = random_nodes(seed, 9, kinds)
    found = forecasts(*of_nodes(*(each[8 - days : 8] for each in series))).nodes
    assert all(each.days_used == days for each in found)
    return np.array([p95(each[8]) <= one.peak_millicores for each, one in zip(series, found, strict=True)])


@pytest.mark.parametrize("days", range(3, 9))
def test_18_must_show_with_three_to_eight_known_days_at_least_87_percent_are_covered(days: int) -> None:
    assert np.mean([covered(seed, days) for seed in range(4)]) >= 0.87


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("days", [3, 5, 7, 8])
def test_18_must_show_coverage_with_few_days_holds_for_each_kind_of_node(kind: str, days: int) -> None:
    # a sample of 300 has a standard error of 2 percent
    assert np.mean([covered(seed, days, (kind,)) for seed in range(3)]) >= 0.85
