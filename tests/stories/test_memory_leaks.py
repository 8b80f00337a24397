"""A service that leaks memory, from the first forecast to its OOM kill and after it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.cycle.run import run_cycle
from rebalancer.daemon.telemetry import record_forecast_run
from rebalancer.lab import Scenario
from rebalancer.lab.loads.cpu import CpuModel, MemoryModel
from rebalancer.web import Metrics
from tests.stories.scenarios.stage import START, a_foreseeing_stage, a_machine, a_scenario, service

HOUR = 3600.0
MIB = 2.0**20
LIMIT = 1000
BASE, PER_HOUR = 200, 100
KILL = START + ((LIMIT - BASE) / PER_HOUR - 2) * HOUR
"""The pods are two hours old when the lab starts."""


def the_cluster() -> Scenario:
    """`leaky` is killed at 1000 MiB; the others have memory of every harmless kind."""
    leaky = MemoryModel(base_bytes=BASE * MIB, growth_bytes_per_hour=PER_HOUR * MIB)
    warm = MemoryModel(base_bytes=800 * MIB, warm_seconds=5 * HOUR)
    return a_scenario(
        [a_machine(name, memory="16Gi") for name in ("a", "b", "c")],
        service("leaky", {"a": 1, "b": 1}, memory=leaky, memory_limit=f"{LIMIT}Mi", age_seconds=2 * HOUR),
        service("flat", {"a": 2, "c": 1}, memory="900Mi", memory_limit="1000Mi"),
        # one of them is new, and warms up for five hours to the size of its sibling
        service("warm", {"c": 1}, replicas=2, memory=warm, memory_limit="1000Mi"),
    )


@pytest.mark.timeout(300)
def test_leak_is_found_two_hours_before_it_would_be_killed(tmp_path: Path) -> None:
    with a_foreseeing_stage(the_cluster(), tmp_path, start=START, forecast={"interval": "30m"}) as stage:
        lab, world, seen = stage.lab, stage.world, {}
        while lab.clock.now() < KILL + 2 * HOUR:
            run = stage.lookout.look(world.cluster.snapshot())
            seen[lab.clock.now()] = {each.pod: each for each in run.leaks}
            report = run_cycle(world, stage.policy, dry_run=False).report
            notes = [each for each in report.notes if "memory" in each]
            assert len(notes) == bool(run.leaks)
            lab.clock.sleep(HOUR / 2)
        killed = {f"{each.namespace}/{each.name}": each.at for each in lab.log.entries("broken")}
        gone = stage.log.evicted
    assert set(killed.values()) == {KILL}
    first = next(found for found in seen.values() if found).values()
    assert all(pod.startswith("shop/leaky-") for pod in killed)
    assert len(killed) == 2
    metrics = Metrics()
    record_forecast_run(metrics, replace(run, leaks=tuple(first)), 1.0)
    lines = metrics.page()[0].decode().splitlines()
    assert 'rebalancer_memory_leak_pods{state="day"} 2.0' in lines
    assert 'rebalancer_memory_leak_pods{state="later"} 0.0' in lines
    in_time = [found for at, found in seen.items() if at <= KILL - 2 * HOUR]
    assert set(in_time[-1]) == set(killed)
    for leak in in_time[-1].values():
        assert leak.kill_at == pytest.approx(KILL, abs=HOUR / 4)
        assert leak.kill_from - HOUR / 12 <= KILL <= leak.kill_until + HOUR / 12
        assert (leak.limit_mebibytes, leak.service) == (LIMIT, "shop/leaky")
        assert leak.mebibytes_per_hour == pytest.approx(PER_HOUR, rel=0.05)
    # nothing else is one, nor are the same pods right after their restart
    assert {pod for found in seen.values() for pod in found} == set(killed)
    assert not any(found for at, found in seen.items() if at > KILL + 300)
    assert gone == []


@pytest.mark.timeout(300)
def test_memory_of_the_lab_that_lives_is_no_leak(tmp_path: Path) -> None:
    busy = CpuModel(base=0.5, amplitude=0.6, noise=0.4, peak_hour=16.0)
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in ("a", "b", "c")],
        service("old", {"a": 2, "b": 2}, cpu=busy, memory_limit="256Mi"),
        service("young", {"a": 1, "b": 1}, cpu=busy, memory_limit="256Mi", age_seconds=0.5 * HOUR),
        service("new", {"c": 1}, replicas=3, cpu=busy, memory_limit="256Mi"),
        service("alone", {"c": 1}, cpu=busy, age_seconds=HOUR),
    )
    with a_foreseeing_stage(cluster, tmp_path, start=START, forecast={"interval": "30m"}) as stage:
        for _ in range(24):
            run = stage.lookout.look(stage.world.cluster.snapshot())
            assert run.leaks == ()
            stage.lab.clock.sleep(HOUR / 2)
