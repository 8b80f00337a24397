"""Memory leaks among pods of every shape: found with a date, and nothing else is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.forecast.memory.leaks import MIB, MemoryLeak, find_leaks, leaks_note
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from tests.builders import GIB, NOW, APod, a_node, a_pod, cluster

END = int(NOW // STEP_SECONDS)
"""Step after the newest sample."""
HOUR = 3600.0
DAYS = 9

Shape = Callable[[np.ndarray], np.ndarray]
"""Hours before NOW, ascending to 0 -> MiB."""


def series(shape: Shape, *, age: float) -> np.ndarray:
    """MiB at each step of the history; NaN before the pod's start and after the end."""
    first = (END // SLOTS - DAYS + 1) * SLOTS
    steps = np.arange(first, first + DAYS * SLOTS)
    hours = (steps + 1 - END) * STEP_SECONDS / HOUR
    known = (steps < END) & (hours * HOUR > -age)
    return np.where(known, shape(np.where(known, hours, 0.0)), np.nan)


def blocks(pods: Mapping[str, np.ndarray], nodes: Mapping[str, np.ndarray]) -> list[DayBlock]:
    out = []
    for day in range(DAYS):
        part = slice(day * SLOTS, (day + 1) * SLOTS)
        there = [name for name, values in pods.items() if np.isfinite(values[part]).any()]
        out.append(
            DayBlock(
                day=END // SLOTS - DAYS + 1 + day,
                pods=tuple(there),
                pod_millicores=np.array([pods[name][part] for name in there], dtype=np.float32).reshape(-1, SLOTS),
                nodes=tuple(nodes),
                node_millicores=np.array([each[part] for each in nodes.values()], dtype=np.float32).reshape(-1, SLOTS),
            )
        )
    return out


def leaks(
    shapes: Mapping[str, Shape],
    *,
    age: float | Mapping[str, float] = 3 * DAY_SECONDS,
    limit: float | None = 1024.0,
    used: float = 8 * 1024.0,
    allocatable: float = 64 * GIB,
    **fields: Any,
) -> dict[str, MemoryLeak]:
    """By pod; `limit` in MiB is each pod's, `used` what the node uses."""
    template = {} if limit is None else {"memoryLimits": [limit * MIB]}
    ages = age if isinstance(age, Mapping) else dict.fromkeys(shapes, age)
    pods: list[APod] = [
        a_pod(name, owner=name.rpartition("-")[0], node="a", age=ages[name], template=template, **fields)
        for name in shapes
    ]
    snapshot = cluster([a_node("a", memory=64 * GIB)], pods)
    nodes = replace(snapshot.nodes, memory_allocatable_bytes=np.array([allocatable]))
    snapshot = replace(snapshot, nodes=nodes)
    past = {f"shop/{name}": series(shape, age=ages[name]) for name, shape in shapes.items()}
    node = series(lambda hours: np.full(len(hours), used), age=30 * DAY_SECONDS)
    found = find_leaks(blocks(past, {"a": node}), snapshot, now=NOW)
    return {each.pod.removeprefix("shop/"): each for each in found}


def noisy(shape: Shape, share: float, seed: int = 1) -> Shape:
    random = np.random.default_rng(seed)
    return lambda hours: shape(hours) * (1 + share * random.standard_normal(len(hours)))


def growing(per_hour: float, now: float) -> Shape:
    return lambda hours: np.maximum(now + per_hour * hours, 10.0)


@pytest.mark.parametrize("per_hour", [20.0, 60.0, 120.0])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_leak_is_found_two_hours_before_the_kill_with_a_date(per_hour: float, noise: float) -> None:
    """At 784, 904 and 964 of 1024 MiB."""
    now = 1024.0 - 2 * per_hour
    found = leaks({"web-1": noisy(growing(per_hour, now), noise)}, age=now / per_hour * HOUR)["web-1"]
    assert found.mebibytes_per_hour == pytest.approx(per_hour, rel=0.15)
    assert (found.kill_at - NOW) / HOUR == pytest.approx(2.0, abs=0.4)
    assert found.kill_from <= found.kill_at <= found.kill_until
    assert (found.limit_mebibytes, found.node, found.service) == (1024.0, "a", "shop/web")
    assert NOW - found.since >= 2 * HOUR


def test_leak_of_a_pod_that_lives_four_hours_is_found_two_hours_before_its_end() -> None:
    found = leaks({"web-1": growing(250.0, 520.0)}, age=2.1 * HOUR)["web-1"]
    assert (found.kill_at - NOW) / HOUR == pytest.approx(2.0, abs=0.1)


def test_leak_that_begins_in_an_old_pod_is_found() -> None:
    shape: Shape = lambda hours: 300.0 + np.maximum(hours + 4.0, 0.0) * 100.0  # noqa: E731
    found = leaks({"web-1": noisy(shape, 0.005)})["web-1"]
    assert (found.kill_at - NOW) / HOUR == pytest.approx(3.24, abs=0.3)


def test_leak_over_a_week_on_a_daily_pattern_is_found() -> None:
    shape: Shape = lambda hours: 800.0 + 3.0 * hours + 60.0 * np.sin(hours / 24 * 2 * np.pi)  # noqa: E731
    found = leaks({"web-1": noisy(shape, 0.01)}, age=8.6 * DAY_SECONDS)["web-1"]
    assert found.mebibytes_per_hour == pytest.approx(3.0, rel=0.1)
    assert NOW - found.since == 8 * DAY_SECONDS


@pytest.mark.parametrize("hours_ago", [1.5, 3.0, 6.0])
def test_leak_that_becomes_faster_is_dated_by_its_present_growth(hours_ago: float) -> None:
    """By 40 MiB a day for weeks, and now by 150 MiB an hour; it would be killed in two hours."""
    shape: Shape = lambda hours: 700.0 + 40.0 * hours / 24 + np.maximum(hours + hours_ago, 0.0) * 150.0  # noqa: E731
    limit = 1000.0 + 150.0 * hours_ago
    found = leaks({"web-1": noisy(shape, 0.002)}, age=20 * DAY_SECONDS, limit=limit)["web-1"]
    assert (found.kill_at - NOW) / HOUR == pytest.approx(2.0, rel=0.2)
    assert NOW - found.since <= 8 * HOUR


@pytest.mark.parametrize("later", range(0, 24, 3))
def test_leak_over_a_week_is_no_faster_while_its_daily_pattern_rises(later: int) -> None:
    shape: Shape = lambda hours: 800.0 + 3.0 * hours + 60.0 * np.sin((hours + later) / 24 * 2 * np.pi)  # noqa: E731
    found = leaks({"web-1": noisy(shape, 0.01)}, age=8.6 * DAY_SECONDS)["web-1"]
    assert found.mebibytes_per_hour == pytest.approx(3.0, rel=0.15)


CALM: dict[str, Shape] = {
    "flat": lambda hours: np.full(len(hours), 900.0),
    "warm-up": lambda hours: 800.0 * (1 - np.exp(-(hours + 6.0) / 2.0)),
    "plateau": lambda hours: np.minimum(800.0, 200.0 + 150.0 * (hours + 6.0)),
    "garbage-collection": lambda hours: 400.0 + 500.0 * ((hours + 100.0) % 5.0) / 5.0,
    "daily-pattern": lambda hours: 500.0 + 300.0 * np.sin(hours / 24 * 2 * np.pi),
    "one-step": lambda hours: np.where(hours > -1.0, 900.0, 500.0),
    "creeping": lambda hours: 900.0 + 0.5 * hours,
}


@pytest.mark.parametrize("name", CALM)
@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("later", [0.0, 3.0, 7.5, 13.0, 19.5])
def test_leak_is_none_of_these(name: str, noise: float, later: float) -> None:
    shape = CALM[name]
    shifted: Shape = lambda hours: np.asarray(shape(hours + later))  # noqa: E731
    age = 6.0 * HOUR + later * HOUR if name in ("warm-up", "plateau") else 5 * DAY_SECONDS
    assert leaks({f"{name}-1": noisy(shifted, noise)}, age=age) == {}


def test_leak_is_found_in_few_random_walks() -> None:
    """A walk that happens to rise for a whole time can't be told from one."""
    steps = np.random.default_rng(1).standard_normal((1000, DAYS * SLOTS)).cumsum(axis=1) * 3
    shapes: dict[str, Shape] = {f"walk{at}-1": (lambda hours, at=at: 600.0 + steps[at]) for at in range(1000)}
    assert len(leaks(shapes, age=10 * DAY_SECONDS)) <= 30


def test_leak_begins_again_after_a_restart() -> None:
    """Killed at 1000 MiB every ten hours, the last time an hour or four hours ago."""

    def saw(after: float) -> Shape:
        return lambda hours: 50.0 + 95.0 * ((hours - after + 100.0) % 10.0)

    assert leaks({"web-1": saw(9.0)}, restarts=8) == {}
    found = leaks({"web-1": saw(6.0)}, restarts=8)["web-1"]
    assert found.ended_before == 7
    assert found.sentence.endswith("; growth of its service ended like this 7 times in the last days")
    assert (found.kill_at - NOW) / HOUR == pytest.approx((1024 - 50 - 95 * 4) / 95, abs=0.3)
    # the same without restarts is memory that the pod gives back
    assert leaks({"web-1": saw(6.0)}) == {}
    # a pattern of days is none, however often the pod has restarted
    daily = CALM["daily-pattern"]
    shifted: list[Shape] = [lambda hours, by=by: np.asarray(daily(hours + by)) for by in range(0, 24, 3)]
    assert leaks({f"web{at}-1": each for at, each in enumerate(shifted)}, restarts=20) == {}


def test_leak_is_no_pod_that_grows_to_the_size_of_its_older_siblings() -> None:
    young, old = growing(100.0, 500.0), growing(0.0, 700.0)
    ages = {"web-1": 5 * HOUR, "web-2": 3 * DAY_SECONDS}
    assert leaks({"web-1": young, "web-2": old}, age=ages) == {}
    assert set(leaks({"web-1": growing(100.0, 900.0), "web-2": old}, age={**ages, "web-1": 8.5 * HOUR})) == {"web-1"}
    # a sibling that grows as well is no evidence
    both = {"web-1": young, "web-2": growing(100.0, 900.0)}
    assert set(leaks(both, age={"web-1": 5 * HOUR, "web-2": 9 * HOUR})) == {"web-1", "web-2"}


def with_former(former: Shape, *, until: float, begin: float = 40.0) -> tuple[MemoryLeak, ...]:
    """Leaks where `web-1` is seven hours old, grows by 60 MiB an hour, has 500 MiB and may have 1024; of its service a
    pod lived from `begin` hours ago `until` hours ago."""
    pod = a_pod("web-1", owner="web", node="a", age=7 * HOUR, template={"memoryLimits": [1024 * MIB]})
    before = series(lambda hours: np.where(hours < -until, former(hours), np.nan), age=begin * HOUR)
    past = {"shop/web-1": series(growing(60.0, 500.0), age=7 * HOUR), "shop/web-0": before}
    return find_leaks(blocks(past, {}), cluster([a_node("a")], [pod]), now=NOW)


def test_leak_is_no_pod_that_grows_as_far_as_former_pods_of_its_service_did() -> None:
    """A rollout in the night, and a working day that begins."""
    assert with_former(lambda hours: 350.0 + 300.0 * np.sin(hours / 24 * 2 * np.pi), until=7.0) == ()
    assert len(with_former(lambda hours: np.full(len(hours), 400.0), until=7.0)) == 1
    # it was not there for long enough to tell
    assert len(with_former(lambda hours: np.full(len(hours), 700.0), until=7.0, begin=12.0)) == 1


def test_leak_is_sure_where_former_pods_of_its_service_grew_until_they_ended() -> None:
    (found,) = with_former(lambda hours: 1024.0 + 30.0 * (hours + 7.0), until=7.0)
    assert found.ended_before == 1
    assert found.sentence.endswith("; growth of its service ended like this once in the last days")
    (found,) = with_former(lambda hours: 100.0 + 90.0 * ((hours + 100.0) % 10.0), until=7.0)
    assert found.ended_before == 1


@pytest.mark.parametrize("ago", [8.0, 20.0, 30.0])
def test_leak_is_none_where_a_former_pod_gave_memory_back_once(ago: float) -> None:
    """For an hour, and no growth ended with it."""
    former: Shape = lambda hours: np.where(np.abs(hours + ago) < 0.5, 200.0, 600.0)  # noqa: E731
    assert with_former(former, until=7.0) == ()


@pytest.mark.parametrize("fell", [33.0, 20.0, 12.0])
def test_leak_of_former_pods_is_known_by_their_whole_lives(fell: float) -> None:
    """A pod was killed at 1000 MiB two days ago, yesterday or today, and stayed level afterwards."""
    shape: Shape = lambda hours: np.where(hours < -fell, 1000.0 + 20.0 * (hours + fell), 300.0)  # noqa: E731
    (found,) = with_former(shape, until=7.0)
    assert found.ended_before == 1


def test_leak_without_a_limit_is_dated_by_the_memory_of_its_node() -> None:
    free = 1200.0
    shapes = {"web-1": growing(100.0, 900.0), "api-1": growing(200.0, 1800.0)}
    found = leaks(shapes, limit=None, age=8 * HOUR, used=64 * 1024 - free)
    assert {name: each.limit_mebibytes for name, each in found.items()} == {"web-1": None, "api-1": None}
    assert [(each.kill_at - NOW) / HOUR for each in found.values()] == pytest.approx([4.0, 4.0], rel=0.05)
    # what is reserved for the system and used by it is no reason
    reserved = leaks(shapes, limit=None, age=8 * HOUR, used=64 * 1024 - free, allocatable=60 * GIB)
    assert [each.kill_at for each in reserved.values()] == [each.kill_at for each in found.values()]
    # far from it nothing is said
    assert leaks(shapes, limit=None, age=8 * HOUR, used=1024.0) == {}


def test_leak_with_a_pause_has_no_latest_time_beyond_a_year() -> None:
    """It grows for 6 hours, stands still for 14 but for a few bytes, and grows again, in two steps."""
    hours, levels = [-400.0, -24.0, -18.1, -4.0, 0.0], [2000.0, 2000.0, 8000.0, 8000.004, 16000.0]
    shape: Shape = lambda at: np.interp(np.where(at > -4.0, np.ceil(at / 2) * 2, at), hours, levels)  # noqa: E731
    (found,) = leaks({"web-1": shape}, limit=None).values()
    assert found.kill_at < NOW + 12 * DAY_SECONDS
    assert math.isinf(found.kill_until)
    note = leaks_note([found])
    assert note is not None
    assert note.endswith(", or never)")


def test_leak_is_dated_by_the_largest_limit_of_a_container_at_the_earliest() -> None:
    template = {"memoryLimits": [1024 * MIB, 256 * MIB]}
    pod = a_pod("web-1", owner="web", node="a", age=8 * HOUR, template=template)
    past = {"shop/web-1": series(growing(100.0, 824.0), age=8 * HOUR)}
    found = find_leaks(blocks(past, {}), cluster([a_node("a")], [pod]), now=NOW)
    assert [(each.kill_at - NOW) / HOUR for each in found] == pytest.approx([2.0], rel=0.05)
    assert [(each.kill_until - NOW) / HOUR for each in found] == pytest.approx([4.56], rel=0.05)


def test_leak_is_not_found_in_old_samples() -> None:
    pod = a_pod("web-1", owner="web", node="a", age=8 * HOUR, template={"memoryLimits": [1024 * MIB]})
    past, snapshot = {"shop/web-1": series(growing(100.0, 824.0), age=8 * HOUR)}, cluster([a_node("a")], [pod])
    assert find_leaks(blocks(past, {}), snapshot, now=NOW + 0.5 * HOUR) != ()
    assert find_leaks(blocks(past, {}), snapshot, now=NOW + 2 * HOUR) == ()
    assert find_leaks((), snapshot, now=NOW) == ()


@settings(max_examples=40, deadline=None)
@given(
    per_hour=st.floats(15, 400),
    start=st.floats(20, 300),
    noise=st.floats(0, 0.01),
    seed=st.integers(0, 100),
)
def test_leak_from_any_start_at_any_rate_is_found_two_hours_before(
    per_hour: float, start: float, noise: float, seed: int
) -> None:
    hours = 10.0
    now = start + per_hour * hours
    shape = noisy(growing(per_hour, now), noise, seed)
    found = leaks({"web-1": shape}, age=hours * HOUR, limit=now + 2 * per_hour)
    assert (found["web-1"].kill_at - NOW) / HOUR == pytest.approx(2.0, abs=0.7)
    assert found["web-1"].kill_from <= NOW + 2.2 * HOUR


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_leak_in_steps_or_under_garbage_collection_is_found(noise: float) -> None:
    """An allocator grows by 64 MiB at a time; a runtime collects garbage of 80 MiB every 20 minutes."""
    steps: Shape = lambda hours: 904.0 + 64.0 * np.floor((hours * 60.0) / 64.0)  # noqa: E731
    garbage: Shape = lambda hours: 860.0 + 60.0 * hours + 80.0 * ((hours * 3 + 90.0) % 1.0)  # noqa: E731
    for shape in (steps, garbage):
        found = leaks({"web-1": noisy(shape, noise)}, age=13 * HOUR)["web-1"]
        assert found.mebibytes_per_hour == pytest.approx(60.0, rel=0.15)
        assert (found.kill_at - NOW) / HOUR == pytest.approx(2.0, abs=0.8)
