"""Cases with the numbers that forecasts must reach: the day after a weekend, level shifts, few days, new services."""

from itertools import pairwise

import numpy as np
import pytest

from rebalancer.forecast import Forecasts
from rebalancer.forecast.series.percentiles import P95, quantile
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import SLOTS, History
from tests.builders import ANode, a_node, a_pod
from tests.forecast.builders import AGED, MIDNIGHT, flat, forecasts, history, the_forecast, world

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
def test_on_sunday_evening_monday_is_forecast_within_ten_percent(others: int, hours_before_midnight: int) -> None:
    past, snapshot = of_nodes(business("rrwwwwwrr"), *(calm(10 + number) for number in range(others)))
    found = forecasts(past, snapshot, now=MIDNIGHT - hours_before_midnight * HOUR).nodes
    assert found[0].parts.daily_p95[-1] == pytest.approx(739, rel=0.05)
    assert 1836 <= found[0].peak_millicores <= 2244
    for each in found[1:]:
        assert each.peak_millicores == pytest.approx(1050, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("days", ["wwwwwrr", "rwwwwwrr", "rrwwwwrrr"])
def test_a_forecast_after_rest_days_is_not_below_the_same_weekday_last_week(seed: int, days: str) -> None:
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
def test_a_level_shift_of_one_node_of_twenty_is_followed_within_six_hours(hours: int) -> None:
    before, after = shifted(2.05, hours)
    assert after.nodes[0].peak_millicores == pytest.approx(2050, rel=0.1)
    for mine, theirs in zip(before.nodes[1:], after.nodes[1:], strict=True):
        assert theirs.peak_millicores == pytest.approx(mine.peak_millicores, rel=0.02)


@pytest.mark.parametrize("hours", [6, 12])
def test_a_fall_of_the_level_is_not_followed_at_once(hours: int) -> None:
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
        of_days: np.ndarray
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
def test_must_show_with_three_to_eight_known_days_at_least_87_percent_are_covered(days: int) -> None:
    assert np.mean([covered(seed, days) for seed in range(4)]) >= 0.87


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("days", [3, 5, 7, 8])
def test_must_show_coverage_with_few_days_holds_for_each_kind_of_node(kind: str, days: int) -> None:
    # a sample of 300 has a standard error of 2 percent
    assert np.mean([covered(seed, days, (kind,)) for seed in range(3)]) >= 0.85


def world_with_a_new_service(
    hours: float, *, others: int = 30, request: int = 500, age_days: float = 0.0
) -> tuple[History, ClusterSnapshot, float]:
    """Node `a` with an old service of 500 m and one that has shown the last `hours`, a quiet part of its day; with the
    P95 of the coming day. The other services have higher and lower days of the same kind."""
    random = np.random.default_rng(7)
    day = 1 + 2.6 * np.clip(np.sin((np.arange(SLOTS) / SLOTS * 24 - 6) / 16 * np.pi), 0, None)
    new = np.full((max(int(age_days) + 1, 1), SLOTS), np.nan)
    steps = round((hours + 24 * age_days) * SLOTS / 24)
    new.reshape(-1)[new.size - steps :] = (np.tile(1250 * day, len(new)) * random.normal(1, 0.02, new.size))[-steps:]
    series = {"shop/old-0": calm(3, 8, 500), "shop/new-0": new}
    pods = [
        a_pod("old-0", owner="old", node="a", age=AGED),
        a_pod("new-0", owner="new", node="a", age=hours * HOUR, cpu=request),
    ]
    nodes: list[ANode] = [a_node("a", cpu=16_000)]
    for number in range(others):
        shape = 1 + random.uniform(1.5, 3.0) * (day - 1) / 2.6
        series[f"shop/s{number}-0"] = 400 * random.lognormal(0, 0.5) * shape * random.normal(1, 0.03, (8, SLOTS))
        nodes.append(a_node(f"n{number}", cpu=16_000))
        pods.append(a_pod(f"s{number}-0", owner=f"s{number}", node=f"n{number}", age=AGED))
    truth = p95(500 + 1250 * day)
    return history({name: each.astype(np.float32) for name, each in series.items()}), world(nodes, pods), truth


@pytest.mark.parametrize("hours", [1, 2, 3, 6, 9, 12, 18, 23])
def test_a_new_service_is_covered_from_its_first_hour_and_says_how_little_is_known(hours: int) -> None:
    past, snapshot, truth = world_with_a_new_service(hours)
    found = the_forecast(past, snapshot)
    assert truth == pytest.approx(5030, rel=0.02)
    assert truth <= found.peak_millicores <= 1.2 * truth
    assert found.confidence < 0.2


def test_the_margin_of_a_new_service_falls_and_its_confidence_rises_as_its_hours_become_known() -> None:
    found = [the_forecast(*world_with_a_new_service(hours)[:2]) for hours in (1, 3, 6, 12, 18, 23)]
    assert found[1].margin > found[1].parts.level
    assert found[-1].margin < 0.05 * found[-1].parts.level
    for earlier, later in pairwise(found):
        assert later.margin < earlier.margin
        assert later.confidence > earlier.confidence
    days = [the_forecast(*world_with_a_new_service(0, age_days=days)[:2]) for days in (1, 2, 4, 7)]
    assert [each.confidence for each in days] == sorted(each.confidence for each in days)
    assert days[-1].confidence > 0.7
    assert days[0].margin == pytest.approx(days[-1].margin, abs=0.05 * days[-1].parts.level)


def test_a_new_service_counts_with_its_request_until_its_hours_are_known() -> None:
    past, snapshot, _ = world_with_a_new_service(0.5, request=6000)
    first = the_forecast(past, snapshot)
    assert first.peak_millicores >= 500 + 0.9 * 6000
    assert first.confidence < 0.2
    small, large = (the_forecast(*world_with_a_new_service(3, request=request)[:2]) for request in (500, 8000))
    assert 500 + 0.8 * 8000 <= large.peak_millicores <= 500 + 8500
    assert large.peak_millicores > small.peak_millicores
    known = the_forecast(*world_with_a_new_service(0, age_days=2, request=8000)[:2])
    assert known.peak_millicores == pytest.approx(4976, rel=0.03)


def test_with_few_other_services_a_new_one_may_use_twice_what_it_has_shown() -> None:
    past, snapshot, _ = world_with_a_new_service(3, others=2)
    found = the_forecast(past, snapshot)
    assert found.margin > 0.85 * (found.parts.level - 500)
    assert found.confidence < 0.2


def test_other_nodes_keep_their_forecast_and_their_confidence() -> None:
    past, snapshot, _ = world_with_a_new_service(3)
    for each in forecasts(past, snapshot).nodes[1:]:
        assert each.confidence == pytest.approx(1.0)
        assert each.margin < 0.2 * each.parts.level


def test_the_confidence_is_that_of_the_pods_weighted_by_their_usage() -> None:
    past = history({"shop/old-0": flat(900), "shop/new-0": flat(300)[-4:], "shop/bare-0": flat(300)[-2:]})
    pods = [a_pod("old-0", owner="old", node="a", age=AGED), a_pod("new-0", owner="new", node="a", age=4 * 86_400)]
    found = the_forecast(past, world([a_node("a")], [*pods, a_pod("bare-0", node="a", age=2 * 86_400)]))
    known = (900 * 1 + 300 * 4 / 8 + 300 * 2 / 8) / 1500
    assert found.confidence == pytest.approx(known * (0.5 + 0.5 * found.parts.own_share), rel=1e-3)


def test_a_rollout_of_an_old_service_has_no_allowance() -> None:
    past = history({f"shop/web-old{number}": flat(400) for number in range(3)} | {"shop/web-new": flat(400)[-1:, :]})
    found = the_forecast(past, world([a_node("a")], [a_pod("web-new", owner="web", node="a", age=HOUR)]))
    assert found.peak_millicores == pytest.approx(400, rel=0.01)


def test_hours_on_a_saturated_node_count_as_known() -> None:
    busy = flat(1000)
    busy[:, 100:200] = 4000
    snapshot = world([a_node("a", cpu=4000)], [a_pod("web-0", owner="web", node="a", age=AGED, cpu=4000)])
    found = the_forecast(history({"shop/web-0": busy}, {"a": busy}), snapshot)
    assert found.peak_millicores == pytest.approx(4000, rel=0.05)
    assert found.confidence > 0.5
