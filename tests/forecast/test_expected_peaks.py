"""What is expected of nodes and pods: the course of a node, what each pod has in it, and newer snapshots."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.forecast import forecast_nodes
from rebalancer.forecast.series.percentiles import P95, quantile
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import a_node, a_pod
from tests.forecast.builders import (
    AGED,
    DAYS,
    MIDNIGHT,
    by_pod,
    diverse,
    expect,
    flat,
    history,
    look,
    services,
    world,
)

ON_A, ON_B = {"node": "a", "age": AGED}, {"node": "b", "age": AGED}
ONE_POD = world([a_node("a")], [a_pod("web-0", **ON_A)])
BOTH = (a_node("a"), a_node("b"))
HOUR = 3600.0


def wave(level: float, *, top: int = 144, swing: float = 0.5) -> np.ndarray:
    """A sinus that is highest at slot `top`."""
    turn = np.cos((np.arange(SLOTS) - top) / SLOTS * 2 * np.pi)
    return np.tile(level * (1 + swing * turn), (DAYS, 1)).astype(np.float32)


def spiky(level: float, height: float) -> np.ndarray:
    """Half an hour a day, from 14:10 to 14:40."""
    out = flat(level)
    out[:, 170:176] = height
    return out


def test_what_is_flat_is_expected_to_stay_so() -> None:
    peaks = expect(history({"shop/web-0": flat(1000)}), ONE_POD)
    assert peaks.made_at == peaks.starts_at == MIDNIGHT
    assert peaks.expected == pytest.approx(np.full((1, SLOTS), 1000), rel=1e-5)
    assert peaks.node_millicores == pytest.approx([1000])
    assert peaks.node_at.tolist() == [MIDNIGHT]  # the first of the highest
    assert peaks.relief_millicores == pytest.approx([1000])
    assert peaks.pod_millicores == pytest.approx([1000])


def test_the_course_follows_the_time_of_day_from_the_step_of_now_on() -> None:
    six = MIDNIGHT - DAY_SECONDS + 6 * HOUR
    peaks = expect(history({"shop/web-0": wave(1000, top=100)}), ONE_POD, now=six + 299, predictor="weightedP95")
    assert peaks.starts_at == six
    assert peaks.node_at.tolist() == [MIDNIGHT - DAY_SECONDS + 100 * STEP_SECONDS]
    # its P95 is that of the forecast, 1000 * (1 + 0.5 * cos(0.025 of a turn))
    assert peaks.node_millicores[0] == pytest.approx(1500, rel=2e-3)
    assert peaks.expected[0, 100 - 72 + 144] == pytest.approx(500, rel=1e-2)
    # 1250 is passed a sixth of a turn before the top, which lies behind; 1450 some 20.7 steps before it
    assert peaks.first_over(np.array([1250.0])).tolist() == [six]
    assert peaks.first_over(np.array([1450.0])).tolist() == [MIDNIGHT - DAY_SECONDS + 80 * STEP_SECONDS]


def test_the_course_and_what_a_pod_brings_are_without_the_margin() -> None:
    # days of 80 m and one of 100 m with weights 1/4 and 3/4: 95 m; the largest practice error is a quarter of the mean
    # of the days, which is 82.5 m now
    past = history({"shop/web-0": flat(80, 80, 80, 80, 80, 80, 80, 100)})
    options: dict[str, Any] = {"predictor": "weightedP95", "dayWeights": {"weights": [3.0, 1.0]}}
    node_forecasts = look(past, ONE_POD, **options)
    peaks = node_forecasts.peaks(ONE_POD, now=MIDNIGHT)
    assert node_forecasts.forecasts.nodes[0].margin == pytest.approx(20.625)
    assert peaks.node_millicores == pytest.approx([95.0])
    assert peaks.relief_millicores == pytest.approx([95.0])
    assert peaks.pod_millicores == pytest.approx([95.0])
    # and in what goes with it
    past = history({f"shop/web-{index}": flat(80, 80, 80, 80, 80, 80, 80, 100) for index in range(2)})
    one, other = (a_pod(f"web-{index}", **ON_A) for index in range(2))
    node_forecasts = look(past, world([a_node("a")], [one, other]), **options)
    peaks = node_forecasts.peaks(world([a_node("a")], [one]), now=MIDNIGHT)
    assert peaks.node_millicores == pytest.approx([95.0])
    assert peaks.relief_millicores == pytest.approx([95.0])


def test_what_has_been_falling_for_days_is_not_expected_to_fall_elsewhere_too() -> None:
    past = history({"shop/web-0": flat(*(1000 * 0.9**day for day in range(DAYS)))})
    peaks = expect(past, ONE_POD, predictor="weightedP95", dayWeights={"weights": [3.0, 1.0]})
    level = 750 * 0.9**7 + 250 * 0.9**6
    assert peaks.node_millicores[0] < level
    assert peaks.relief_millicores == pytest.approx(peaks.node_millicores)
    assert peaks.pod_millicores == pytest.approx([level])


def test_a_daily_peak_that_is_a_little_too_short_for_the_p95_is_not_taken_for_the_level() -> None:
    hour = flat(80, 80, 80, 80, 80, 80, 80, 100)
    hour[:, 100:113] *= 4  # an hour and five minutes; the P95 is that of the rest
    peaks = expect(history({"shop/web-0": hour}), ONE_POD, predictor="weightedP95", dayWeights={"weights": [3.0, 1.0]})
    assert peaks.expected.min() == pytest.approx(95.0)
    assert peaks.node_millicores == pytest.approx([4 * 95.0])


def test_the_p95_of_the_course_is_the_forecast_and_a_short_daily_peak_stays_above_it() -> None:
    random = np.random.default_rng(4)
    noise = random.lognormal(0, 0.1, (DAYS, SLOTS)).astype(np.float32)
    snapshot = world([a_node("a")], [a_pod("web-0", owner="web", **ON_A)])
    node_forecasts = look(history({"shop/web-0": wave(800) * noise}), snapshot)
    peaks = node_forecasts.peaks(snapshot, now=MIDNIGHT)
    (forecast,) = node_forecasts.forecasts.nodes
    assert forecast.margin != 0
    assert quantile(peaks.expected, P95)[0] == pytest.approx(forecast.peak_millicores - forecast.margin, rel=1e-4)
    node_forecasts = look(history({"shop/web-0": spiky(200, 900)}), snapshot)
    peaks = node_forecasts.peaks(snapshot, now=MIDNIGHT)
    assert quantile(peaks.expected, P95)[0] == pytest.approx(node_forecasts.forecasts.nodes[0].peak_millicores)
    assert quantile(peaks.expected, P95)[0] == pytest.approx(200)
    assert peaks.node_millicores == pytest.approx([900])
    assert peaks.node_at.tolist() == [MIDNIGHT + 171 * STEP_SECONDS]  # smoothed over three steps
    # whoever takes the pod gets its spike too
    assert peaks.relief_millicores == pytest.approx([900])
    assert peaks.pod_millicores == pytest.approx([900])


def test_peaks_that_come_at_another_hour_every_day_do_not_hide_what_is_used_all_day() -> None:
    bursts = flat(1000)
    for day in range(DAYS):
        bursts[day, 30 * day : 30 * day + 12] = 6000  # an hour: no day's P95 sees it
    peaks = expect(history({"shop/web-0": bursts}), ONE_POD)
    assert peaks.expected.min() == pytest.approx(1000, rel=1e-3)
    assert 3000 <= peaks.node_millicores[0] <= 6000


def test_a_node_that_is_idle_but_for_a_short_peak_keeps_that_peak() -> None:
    snapshot = world([a_node("a")], [a_pod("cron-0", **ON_A)])
    peaks = expect(history({"shop/cron-0": spiky(0, 700)}), snapshot)
    assert peaks.node_millicores[0] == pytest.approx(700, rel=0.01)


def test_time_passes_by_whole_steps_and_the_end_stays_where_it_was() -> None:
    snapshot = world([a_node("a")], [a_pod("cron-0", owner="cron", **ON_A)])
    node_forecasts = look(history({"shop/cron-0": spiky(200, 900)}), snapshot, horizon="15h")
    start, later = (
        node_forecasts.peaks(snapshot, now=MIDNIGHT),
        node_forecasts.peaks(snapshot, now=MIDNIGHT + 2 * HOUR + 299),
    )
    assert start.expected.shape == (1, 180)
    assert later.expected.shape == (1, 156)
    assert later.made_at == MIDNIGHT
    assert later.starts_at == MIDNIGHT + 2 * HOUR
    assert later.expected.tolist() == start.expected[:, 24:].tolist()
    assert start.node_at.tolist() == later.node_at.tolist()
    # a clock that is a little behind sees the beginning
    assert node_forecasts.peaks(snapshot, now=MIDNIGHT - 10).starts_at == MIDNIGHT
    # when the spike is over, so is its part in everything
    after = node_forecasts.peaks(snapshot, now=MIDNIGHT + 14.8 * HOUR)
    assert after.node_millicores == pytest.approx([200], rel=1e-3)
    assert after.pod_millicores == pytest.approx([200], rel=1e-3)


def test_what_lies_behind_the_horizon_is_not_expected() -> None:
    past, snapshot = history({"shop/cron-0": spiky(200, 900)}), world([a_node("a")], [a_pod("cron-0", **ON_A)])
    peaks = expect(past, snapshot, horizon="6h")
    assert peaks.expected.shape == (1, 72)
    assert peaks.node_millicores == pytest.approx([200], rel=1e-3)


def test_a_forecast_whose_horizon_is_over_expects_nothing() -> None:
    peaks = look(history({"shop/web-0": flat(500)}), ONE_POD).peaks(ONE_POD, now=MIDNIGHT + DAY_SECONDS)
    assert peaks.expected.shape == (1, 0)
    assert np.isnan([*peaks.node_millicores, *peaks.node_at, *peaks.relief_millicores]).all()


def test_a_forecast_that_knows_too_few_days_decides_nothing() -> None:
    past = history({"shop/web-0": flat(500)[:2]})
    young = expect(past, ONE_POD)
    assert np.isnan(young.expected).all()
    assert np.isnan([*young.node_millicores, *young.node_at, *young.relief_millicores]).all()
    assert np.isnan(young.first_over(np.array([1.0]))).all()
    assert expect(past, ONE_POD, minDays=2).node_millicores == pytest.approx([500])
    idle = expect(history({"shop/web-0": flat(0)[:2]}), ONE_POD)
    assert np.isnan(idle.node_millicores).all()


def test_what_pods_have_in_a_peak_and_what_the_machine_uses_by_itself_add_up_to_it() -> None:
    past = history({"shop/web-0": flat(300), "shop/db-0": flat(600)}, {"a": flat(1000)})
    snapshot = world([a_node("a")], [a_pod("web-0", **ON_A), a_pod("db-0", **ON_A)])
    peaks = expect(past, snapshot)
    assert peaks.node_millicores == pytest.approx([1000])
    assert by_pod(snapshot, peaks.relief_millicores) == pytest.approx({"web-0": 300, "db-0": 600})


def test_the_reliefs_of_all_pods_of_any_node_add_up_to_its_peak() -> None:
    past, nodes, pods = diverse(3, whole=False)
    snapshot = world(nodes, pods)
    peaks = expect(past, snapshot)
    # all but the noise of the highest step, which no pod's shape explains
    together = snapshot.per_node(peaks.relief_millicores)
    assert (together <= peaks.node_millicores * (1 + 1e-5)).all()
    assert (together >= peaks.node_millicores * 0.95).all()


def test_a_pod_that_is_busy_when_its_node_is_relieves_it_more_than_one_that_is_busy_at_night() -> None:
    series = {"shop/day-0": wave(1000), "shop/day-1": wave(1000), "shop/night-0": wave(1000, top=0)}
    pods = [a_pod(f"{name}-{index}", owner=name, **ON_A) for name, index in (("day", 0), ("day", 1), ("night", 0))]
    snapshot = world([a_node("a")], pods)
    peaks = expect(history(series), snapshot, predictor="weightedP95")
    # at noon 1500 + 1500 + 500
    assert peaks.node_millicores[0] == pytest.approx(3500, rel=2e-3)
    relief = by_pod(snapshot, peaks.relief_millicores)
    assert relief == pytest.approx({"day-0": 1500, "day-1": 1500, "night-0": 500}, rel=5e-3)
    # elsewhere it brings its own peak
    assert by_pod(snapshot, peaks.pod_millicores)["night-0"] == pytest.approx(1500, rel=5e-3)


def test_a_pod_that_grew_lately_has_a_larger_part_than_the_mean_of_its_days() -> None:
    past = history({"shop/web-0": flat(100, 100, 100, 100, 100, 100, 500, 900), "shop/db-0": flat(900)})
    snapshot = world([a_node("a")], [a_pod("web-0", **ON_A), a_pod("db-0", **ON_A)])
    peaks = expect(past, snapshot, predictor="weightedP95", dayWeights={"weights": [1.0]})
    relief = by_pod(snapshot, peaks.relief_millicores)
    assert relief["web-0"] == pytest.approx(relief["db-0"])
    assert sum(relief.values()) == pytest.approx(peaks.node_millicores[0])


def test_short_lived_pods_relieve_no_node_and_bring_what_they_use() -> None:
    job = a_pod("report-1-x", owner="report-1", owner_kind="Job", node="a", age=6 * HOUR)
    series = {"shop/web-0": flat(300), "shop/report-1-x": flat(800)[-1:]}
    snapshot = world([a_node("a")], [a_pod("web-0", **ON_A), job])
    peaks = expect(history(series), snapshot)
    assert by_pod(snapshot, peaks.relief_millicores)["report-1-x"] == 0
    assert by_pod(snapshot, peaks.pod_millicores)["report-1-x"] == pytest.approx(800)
    # the crowd's part is no pod's: 300 of the peak are the pod's on each of the days
    assert by_pod(snapshot, peaks.relief_millicores)["web-0"] < peaks.node_millicores[0]
    # one that comes later raises nothing: it is one of the crowd
    more = world([a_node("a")], [a_pod("web-0", **ON_A), job, replace(job, name="report-2-x", owner="report-2", age=0)])
    later = look(history(series), snapshot).peaks(more, now=MIDNIGHT)
    assert later.node_millicores.tolist() == peaks.node_millicores.tolist()
    assert by_pod(more, later.pod_millicores)["report-2-x"] == 500  # what it requests


def test_a_declared_event_is_in_what_a_pod_brings() -> None:
    begin = np.datetime64(int(MIDNIGHT), "s").item().isoformat() + "Z"
    end = np.datetime64(int(MIDNIGHT + DAY_SECONDS), "s").item().isoformat() + "Z"
    events = [{"name": "sale", "from": begin, "to": end, "uplift": 50}]
    peaks = expect(history({"shop/web-0": flat(1000)}), ONE_POD, events=events)
    assert peaks.node_millicores == pytest.approx([1500])
    assert peaks.relief_millicores == pytest.approx([1500])
    assert peaks.pod_millicores == pytest.approx([1500])
    # and one that is over is no part of what is usual
    begin = np.datetime64(int(MIDNIGHT - DAY_SECONDS), "s").item().isoformat() + "Z"
    end = np.datetime64(int(MIDNIGHT), "s").item().isoformat() + "Z"
    lifted = flat(1000, 1000, 1000, 1000, 1000, 1000, 1000, 1500)
    over = [{"name": "sale", "from": begin, "to": end, "uplift": 50}]
    peaks = expect(history({"shop/web-0": lifted}), ONE_POD, events=over)
    assert [*peaks.node_millicores, *peaks.pod_millicores] == pytest.approx([1000, 1000])


def test_a_pod_that_left_or_is_leaving_lowers_its_node_by_what_it_had_in_it_and_the_rest_stays() -> None:
    past = history({"shop/day-0": wave(1000), "shop/night-0": wave(1000, top=0)}, {"a": flat(2200)})
    day, night = a_pod("day-0", owner="day", **ON_A), a_pod("night-0", owner="night", **ON_A)
    node_forecasts = look(past, world([a_node("a")], [day, night]))
    for without in (world([a_node("a")], [night]), world([a_node("a")], [replace(day, terminating=True), night])):
        peaks = node_forecasts.peaks(without, now=MIDNIGHT)
        # 1000 by night and 200 of the node itself are left
        assert peaks.node_millicores == pytest.approx([1700], rel=5e-3)
        assert peaks.node_at.tolist() == [MIDNIGHT]
        assert peaks.expected[0, 144] == pytest.approx(700, rel=5e-3)
        relief = by_pod(without, peaks.relief_millicores)
        assert relief.pop("night-0") == pytest.approx(1500, rel=5e-3)
        assert relief in ({}, {"day-0": 0})
    # nothing of this changes the base
    assert node_forecasts.peaks(world([a_node("a")], [day, night]), now=MIDNIGHT).node_millicores == pytest.approx(
        [2200]
    )


def test_a_node_that_all_pods_left_never_falls_below_zero() -> None:
    series, pods = services("web", on="a")
    series["shop/web-1"] = wave(400)
    node_forecasts = look(history(series), world([a_node("a")], pods))
    peaks = node_forecasts.peaks(world([a_node("a")], []), now=MIDNIGHT)
    assert (peaks.expected >= 0).all()
    assert peaks.node_millicores[0] < 40  # the shape of one is the mean of both


def test_a_pod_that_came_raises_its_node_by_its_services_usual_replica() -> None:
    series, pods = services("web")
    series["shop/web-1"] = flat(600)
    pods.append(a_pod("db-0", **ON_A))
    node_forecasts = look(history(series | {"shop/db-0": flat(1000)}), world(BOTH, pods))
    newer = world(BOTH, [*pods, a_pod("web-9", owner="web", node="a", age=60)])
    peaks = node_forecasts.peaks(newer, now=MIDNIGHT)
    assert peaks.node_millicores == pytest.approx([1500, 1000])
    assert by_pod(newer, peaks.relief_millicores)["web-9"] == pytest.approx(500)
    assert by_pod(newer, peaks.pod_millicores)["web-9"] == pytest.approx(500)
    # while it waits it is nowhere, and it is known what it will bring
    waiting = world(BOTH, [*pods, a_pod("web-9", owner="web", phase=PENDING, age=60)])
    peaks = node_forecasts.peaks(waiting, now=MIDNIGHT)
    assert peaks.node_millicores == pytest.approx([1000, 1000])
    assert by_pod(waiting, peaks.relief_millicores)["web-9"] == 0
    assert by_pod(waiting, peaks.pod_millicores)["web-9"] == pytest.approx(500)


@pytest.mark.parametrize(("level", "last", "ratio"), [(80.0, 100.0, 115.625 / 95), (10.0, 1000.0, 2.0)])
@pytest.mark.parametrize("resource", [OF_CPU, ForecastResource(name=MEMORY)], ids=["cpu", "memory"])
def test_plans_keep_the_margin_of_memory_and_not_more_than_twice_of_an_idle_node(
    resource: ForecastResource, level: float, last: float, ratio: float
) -> None:
    series, pods = services("web")
    pods.append(a_pod("db-0", **ON_A))
    past = history(series | {"shop/db-0": flat(*[level] * 7, last)})
    node_forecasts = forecast_nodes(
        past,
        world(BOTH, pods),
        policy=Forecast.model_validate({"predictor": "weightedP95", "dayWeights": {"weights": [3.0, 1.0]}}),
        pool_of=np.array([0, 1], dtype=np.int32),
        pools=["restless", "calm"],
        now=MIDNIGHT,
        resource=resource,
    )
    forecast = node_forecasts.forecasts.nodes[0]
    assert forecast.margin > 0
    keeps = resource.name == MEMORY
    newer = world(BOTH, [*pods, a_pod("web-9", owner="web", node="a", age=60)])
    peaks = node_forecasts.peaks(newer, now=MIDNIGHT)
    each = 400 * (min(forecast.peak_millicores / (forecast.peak_millicores - forecast.margin), 2.0) if keeps else 1.0)
    assert not keeps or each == pytest.approx(400 * ratio, rel=0.1)
    bare = forecast.peak_millicores - (0 if keeps else forecast.margin)
    assert peaks.node_millicores[0] == pytest.approx(bare + each)
    assert by_pod(newer, peaks.relief_millicores)["web-9"] == pytest.approx(each)
    assert by_pod(newer, peaks.pod_millicores)["web-0"] == pytest.approx(400)


def test_a_pod_of_which_nothing_is_known_counts_with_its_request_from_the_first_look_on() -> None:
    past = history({"shop/web-0": flat(1000)})
    web, new = a_pod("web-0", **ON_A), a_pod("new-0", owner="new", node="a", cpu=700, age=60)
    nameless = a_pod("silent-0", owner="silent", node="a", cpu=0, age=60)
    with_new = world([a_node("a")], [web, new, nameless])
    for node_forecasts in (look(past, with_new), look(past, world([a_node("a")], [web]))):
        peaks = node_forecasts.peaks(with_new, now=MIDNIGHT)
        assert peaks.node_millicores == pytest.approx([1700])
        assert by_pod(with_new, peaks.relief_millicores) == pytest.approx({"web-0": 1000, "new-0": 700, "silent-0": 0})
        assert by_pod(with_new, peaks.pod_millicores)["new-0"] == pytest.approx(700)
        assert np.isnan(by_pod(with_new, peaks.pod_millicores)["silent-0"])


def test_a_faster_machine_needs_less_for_the_same_newcomer() -> None:
    fast, slow = a_node("a", labels={"type": "new"}), a_node("b", labels={"type": "old"})
    series, pods = services("web")
    pods.append(a_pod("db-0", **ON_A))
    generation = {"label": "type", "factors": {"new": 2.0, "old": 1.0}}
    node_forecasts = look(history(series | {"shop/db-0": flat(100)}), world([fast, slow], pods), generation=generation)
    newer = world([fast, slow], [*pods, a_pod("web-9", owner="web", node="a", age=60)])
    assert node_forecasts.peaks(newer, now=MIDNIGHT).node_millicores == pytest.approx([300, 800])


def test_nodes_that_joined_are_unknown_and_nodes_that_went_are_left_out() -> None:
    series, pods = services("web")
    base = look(history(series), world(BOTH, pods))
    newer = world([a_node("c"), a_node("b")], [*pods, a_pod("web-9", owner="web", node="c", age=60)])
    peaks = base.peaks(newer, now=MIDNIGHT)
    assert peaks.node_millicores == pytest.approx([np.nan, 800], nan_ok=True)
    assert np.isnan(peaks.expected[0]).all()
    assert np.isnan(by_pod(newer, peaks.relief_millicores)["web-9"])
    assert by_pod(newer, peaks.pod_millicores)["web-9"] == pytest.approx(400)
    empty = base.peaks(world([], []), now=MIDNIGHT)
    assert empty.expected.shape == (0, SLOTS)


def test_a_cluster_without_nodes_or_pods_has_no_peaks() -> None:
    base = look(history({}), world([], []))
    later = ONE_POD
    assert np.isnan(base.peaks(later, now=MIDNIGHT).node_millicores).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_forecast_laid_over_moved_pods_is_nearly_what_it_would_be_anew(seed: int) -> None:
    past, nodes, pods = diverse(seed)
    random = np.random.default_rng(100 + seed)
    base = look(past, world(nodes, pods))
    moved = [*pods]
    for node in (0, 3, 6):
        at = 8 * node + int(random.integers(0, 8))
        new = f"n{(node + int(random.integers(1, 8))) % 8}"
        moved[at] = a_pod(f"{pods[at].name}x", owner=pods[at].owner, node=new, age=60)
    after = world(nodes, moved)
    quick = base.peaks(after, now=MIDNIGHT)
    anew = look(past, after, before=base).peaks(after, now=MIDNIGHT)
    assert quick.node_millicores == pytest.approx(anew.node_millicores, rel=0.05)
    assert np.abs(quick.expected / anew.expected - 1).mean() < 0.02
    # which says something only where the moves changed something
    before = base.peaks(world(nodes, pods), now=MIDNIGHT)
    assert np.abs(before.expected / anew.expected - 1).mean(axis=1).max() > 0.05
    # what pods have in their node's peak, where that is at the same time
    at_once = np.isclose(quick.node_at, anew.node_at, atol=2 * STEP_SECONDS)
    large = (anew.relief_millicores > 100) & at_once[after.pods.node]
    assert large.sum() > 30
    assert quick.relief_millicores[large] == pytest.approx(anew.relief_millicores[large], rel=0.2)
    assert quick.pod_millicores == pytest.approx(anew.pod_millicores, rel=0.1)
