"""A cycle that waits for its own replacements, where that saves evictions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Scenario
from tests.stories.scenarios.stage import GENEROUS, HIGH, TURN_SECONDS, Stage, a_scenario, a_stage, burner, service

POLL_SECONDS = 5.0
LIMITS = {**GENEROUS, "service": {"inFlight": 1}}
LARGE, SMALL = 1.6, 0.5


def two_large_and_six_small(*, base: float = 7.2, start_seconds: float = 20.0) -> Scenario:
    """The hot node is over its target by less than its two large pods, which are of one service."""
    large = service("large", {"hot": 2}, cpu=LARGE, start_seconds=start_seconds)
    small = [service(f"small{at}", {"hot": 1, "a": 1}, cpu=SMALL, start_seconds=start_seconds) for at in range(6)]
    return a_scenario(
        ("hot", "a", "b"),
        burner("burner", "hot", base, cpu_request="10"),
        burner("filler-a", "a", 1.0, cpu_request="4"),
        burner("filler-b", "b", 1.0, cpu_request="4"),
        large,
        *small,
    )


def started(stage: Stage) -> Stage:
    stage.lab.clock.sleep(TURN_SECONDS)
    return stage


def test_the_second_large_pod_goes_in_the_same_cycle_as_soon_as_the_first_is_replaced(tmp_path: Path) -> None:
    with a_stage(two_large_and_six_small(), tmp_path, limits=LIMITS) as stage:
        report = started(stage).cycle()
        assert [each.pod.split("-")[0] for each in report.evictions] == ["large", "large"]
        assert report.evictions[0].waits_for == ""
        assert report.evictions[1].waits_for == "service shop/large: 1 of 1 in flight"
        assert report.remaining == []
        stage.lab.clock.sleep(TURN_SECONDS)
        first, second = stage.log.moves
        assert first.ready_at is not None
        assert first.ready_at <= second.at <= first.ready_at + 2 * POLL_SECONDS
        assert stage.lab.truth.hot(HIGH / 100) == {}


def test_a_wait_that_is_not_fulfilled_ends_and_the_small_ones_go(tmp_path: Path) -> None:
    with a_stage(
        two_large_and_six_small(start_seconds=400.0), tmp_path, limits=LIMITS, planner={"patience": "60s"}
    ) as stage:
        began = stage.lab.clock.now() + TURN_SECONDS
        report = started(stage).cycle()
        names = [each.pod.split("-")[0] for each in report.evictions]
        log = stage.log.evicted
        assert names[0] == "large"
        assert len(names) == 4
        assert all(name.startswith("small") for name in names[1:])
        assert log[1].at - began >= 60.0
        assert log[-1].at - began <= 60.0 + 4 * POLL_SECONDS


@pytest.mark.parametrize("planner", [{"patience": "0s"}, {"urgent": 80}], ids=["no patience", "urgent"])
def test_without_patience_and_on_urgent_nodes_the_small_ones_go_at_once(
    tmp_path: Path, planner: dict[str, Any]
) -> None:
    with a_stage(two_large_and_six_small(), tmp_path, limits=LIMITS, planner=planner) as stage:
        report = started(stage).cycle()
        names = [each.pod.split("-")[0] for each in report.evictions]
        assert names.count("large") == 1
        assert len(names) == 4
        assert not any(each.waits_for for each in report.evictions)
        times = [each.at for each in stage.log.evicted]
        assert max(times) - min(times) < POLL_SECONDS


def test_a_run_that_does_not_wait_for_its_replacements_never_waits(tmp_path: Path) -> None:
    with a_stage(two_large_and_six_small(), tmp_path, limits=LIMITS) as stage:
        started(stage)
        # as `run --no-wait` makes it: a process that ends before the replacements have landed
        leaves = replace(stage.world.soft_taint_controller, remove_only=True)
        began = stage.lab.clock.now()
        context = replace(stage.world, soft_taint_controller=leaves)
        report = run_cycle(context, stage.policy, dry_run=False).report
        assert report.evictions
        assert not any(each.waits_for for each in report.evictions)
        assert sum(each.pod.startswith("large") for each in report.evictions) <= 1
        assert stage.lab.clock.now() - began < POLL_SECONDS


def test_a_dry_run_says_what_its_moves_would_wait_for(tmp_path: Path) -> None:
    with a_stage(two_large_and_six_small(), tmp_path, limits=LIMITS) as stage:
        started(stage)
        dry = run_cycle(stage.world, stage.policy, dry_run=True).report
        real = stage.cycle()
        assert [(each.pod, each.waits_for) for each in dry.evictions] == [
            (each.pod, each.waits_for) for each in real.evictions
        ]
        assert [bool(each.waits_for) for each in dry.evictions] == [False, True]
