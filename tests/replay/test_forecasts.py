"""Forecasts in a replay: made of the days before it and of what has been simulated, and of nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.runner.job import Job, run_job
from tests.replay.builders import HIGH, START, Recorded, RecordedPod, policy, recording

STEPS = 180
"""15 hours."""
PEAK = slice(132, 168)
"""11:00 to 14:00."""
FIRST = int(START // DAY_SECONDS)


def course(of_day: int, *, peaks: bool = True) -> list[float]:
    """Millicores of a pod of node 0 over a day."""
    values = 600.0 + np.random.default_rng(of_day).normal(0.0, 8.0, SLOTS)
    if peaks:
        values[PEAK] += 400.0
    return [float(each) for each in values]


def with_days_before(*, peaks_today: bool = True) -> Recording:
    """Eight pods on the first of three nodes, with a peak each noon of the eight days before."""
    pods = [
        RecordedPod(
            name=f"s{at}-1-a",
            service=f"s{at}",
            node=0,
            cpu=course(99, peaks=peaks_today)[:STEPS],
            request=300.0,
            begins=-9.0 * SLOTS,
        )
        for at in range(8)
    ]
    pods += [
        RecordedPod(name=f"s{at}-1-b", service=f"s{at}", node=1 + at % 2, cpu=300.0, begins=-9.0 * SLOTS, request=300.0)
        for at in range(8)
    ]
    found = recording(Recorded(nodes=3, steps=STEPS, pods=pods))
    return replace(found, before={"cpu": [_day(FIRST - back, pods) for back in range(8, 0, -1)]})


def _day(day: int, pods: list[RecordedPod]) -> DayBlock:
    grid = np.array([course(day) if each.node == 0 else [300.0] * SLOTS for each in pods], dtype=np.float32)
    on = np.array([each.node for each in pods])
    return DayBlock(
        day=day,
        pods=tuple(f"shop/{each.name}" for each in pods),
        pod_millicores=grid,
        nodes=("node-0", "node-1", "node-2"),
        node_millicores=np.array([grid[on == node].sum(axis=0) for node in range(3)], dtype=np.float32),
    )


def run(found: Recording, mode: str) -> ReplayRun:
    chosen = policy(forecast={"mode": mode})
    return run_job(Job(policy=chosen, mode="policy", label=mode, high=HIGH), found, policy_run)


@pytest.fixture(scope="module")
def acting() -> ReplayRun:
    return run(with_days_before(), "Act")


def test_forecasts_evict_ahead_of_the_peak(acting: ReplayRun) -> None:
    began = START + PEAK.start * STEP_SECONDS
    reacting = run(with_days_before(), "Off")
    assert reacting.evictions
    assert all(each.at > began for each in reacting.evictions)
    assert acting.evictions
    assert min(each.at for each in acting.evictions) < began
    assert "forecast" in {each.trigger for each in acting.cycles if each.evicted}
    assert acting.hot_node_minutes < reacting.hot_node_minutes


def test_forecasts_know_nothing_of_what_is_recorded_later(acting: ReplayRun) -> None:
    """The day on which the peak doesn't come: until noon everything is the same."""
    calm = run(with_days_before(peaks_today=False), "Act")
    began = START + PEAK.start * STEP_SECONDS

    def before(of: ReplayRun) -> list[object]:
        return [(each.at, each.uid, each.reason) for each in of.evictions if each.at < began]

    assert before(calm) == before(acting) != []
    assert calm.hot_node_minutes == 0.0
