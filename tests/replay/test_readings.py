"""What recorded cycles read, in the cycles of a replay."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.recordings.recording import RecordedReadings, Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.cycles.ports import ReplayedCluster
from rebalancer.replay.cycles.readings import CycleTimes, errors_of
from rebalancer.replay.cycles.usage import ReplayedUsage
from rebalancer.replay.runner.job import Job, run_job
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import loads_of
from tests.replay.builders import HIGH, START, Recorded, RecordedPod, policy, recording

STEPS, NODES, WINDOW = 48, 3, 300.0
MINUTE = 60.0


def a_hot_node() -> Recording:
    """Six services; node 0 is hot from step 12 on."""
    pods = []
    for service in range(6):
        for at in range(3):
            node = 0 if at < 2 else 1 + service % 2
            course = [650.0 if node == 0 and step >= 12 else 450.0 for step in range(STEPS)]
            name = f"s{service}-1-{at}"
            pods.append(RecordedPod(name=name, service=f"s{service}", node=node, cpu=course, request=500.0))
    return recording(Recorded(nodes=NODES, steps=STEPS, pods=pods, elsewhere=200.0))


def read_by_cycles(found: Recording, times: Floats, *, more: Floats) -> Recording:
    """With cycles at these times. Each read what its step has, `more` millicores on each pod and `more` times ten on
    each node."""
    count, cpu = len(found.pods), found.usage["cpu"]
    step = ((times - found.start) // STEP_SECONDS).astype(int) - 1
    node = (cpu.node[:, step] + 10 * more).T
    pod = (cpu.pod_values.reshape(count, STEPS)[:, step] + more).T
    return replace(
        found,
        readings=RecordedReadings(
            at=times,
            window_seconds=np.full(len(times), WINDOW),
            cycle=np.ones(len(times), dtype=np.bool_),
            node_start=np.arange(len(times) + 1) * NODES,
            node=np.tile(np.arange(NODES, dtype=np.int32), len(times)),
            node_millicores=node.ravel().astype(np.float32),
            departed_millicores=np.zeros(node.size, dtype=np.float32),
            pod_start=np.arange(len(times) + 1) * count,
            pod=np.tile(np.arange(count, dtype=np.int32), len(times)),
            pod_millicores=pod.ravel().astype(np.float32),
        ),
    )


def every(seconds: float, *, first: float = 600.0) -> Floats:
    return np.arange(START + first, START + (STEPS - 1) * STEP_SECONDS, seconds)


def run(found: Recording, **sections: object) -> ReplayRun:
    return run_job(Job(policy=policy(**sections), mode="policy", label="p", high=HIGH), found, policy_run)


def cluster_of(found: Recording, *, as_recorded: bool) -> SimulatedCluster:
    loads = loads_of(found, joined=not as_recorded)
    return SimulatedCluster(found, loads, seed=0, scheduler=SchedulerConfig(), as_recorded=as_recorded)


def usage_after(found: Recording, at: float, *, evicted: str = "") -> Usage:
    """What a cycle reads; a pod is evicted ten minutes before."""
    assert found.readings is not None
    cluster, recorded = cluster_of(found, as_recorded=False), cluster_of(found, as_recorded=True)
    errors = errors_of(recorded, found.readings, cluster.state.loads, stopping=lambda: False)
    if evicted:
        cluster.run_to(at - 600.0)
        cluster.evict(cluster.state.pods.names.index(evicted))
    cluster.run_to(at)
    return ReplayedUsage(cluster, policy().usage, errors).read(ReplayedCluster(cluster).snapshot())


def test_a_cycle_reads_what_the_recorded_cycle_read() -> None:
    times = every(600.0)
    more = np.random.default_rng(1).normal(0.0, 20.0, len(times))
    found = read_by_cycles(a_hot_node(), times, more=more)
    cpu = found.usage["cpu"]
    for number in (0, 3, 7):
        read = usage_after(found, float(times[number]))
        step = int((times[number] - START) // STEP_SECONDS) - 1
        np.testing.assert_allclose(read.node_cpu_millicores, cpu.node[:, step] + 10 * more[number], rtol=1e-5)
        then = cpu.pod_values.reshape(-1, STEPS)[:, step]
        np.testing.assert_allclose(read.pod_cpu_millicores, then + more[number], rtol=1e-5)


def test_after_another_eviction_it_is_corrected_by_what_that_has_moved() -> None:
    times = every(300.0)
    found = read_by_cycles(a_hot_node(), times, more=np.full(len(times), 30.0))
    at = float(times[30])
    before, after = usage_after(found, at), usage_after(found, at, evicted="s0-1-0")
    moved = after.node_cpu_millicores - before.node_cpu_millicores
    assert moved[0] == pytest.approx(-650.0)
    assert sorted(moved[1:]) == pytest.approx([0.0, 650.0])


def test_a_reading_is_used_from_its_time_on() -> None:
    times = every(300.0)
    more = np.where(times > START + 20 * STEP_SECONDS, 40.0, 0.0)
    found = read_by_cycles(a_hot_node(), times, more=more)
    just_before = usage_after(found, START + 21 * STEP_SECONDS - 1.0)
    np.testing.assert_allclose(just_before.node_cpu_millicores, found.usage["cpu"].node[:, 20], rtol=1e-5)
    after = usage_after(found, START + 21 * STEP_SECONDS)
    np.testing.assert_allclose(after.node_cpu_millicores, found.usage["cpu"].node[:, 20] + 400.0, rtol=1e-5)


def test_readings_that_come_later_change_no_decision_before_them() -> None:
    times = every(300.0)
    more = np.random.default_rng(2).normal(0.0, 20.0, len(times))
    ours = run(read_by_cycles(a_hot_node(), times, more=more))
    assert ours.evictions
    end = START + STEPS * STEP_SECONDS
    for changed_from in (13, 20):
        until = START + changed_from * STEP_SECONDS
        other = run(read_by_cycles(a_hot_node(), times, more=np.where(times < until, more, -300.0)))
        assert [each.at for each in other.cycles] == [each.at for each in ours.cycles]

        def before(of: ReplayRun, until: float = until) -> list[object]:
            return [
                *((each.at, each.uid, each.node, each.cpu_millicores) for each in of.evictions if each.at < until),
                *((each.at, each.hot, each.evicted, each.blocked) for each in of.cycles if each.at < until),
            ]

        assert before(other) == before(ours)
        assert changed_from == 20 or before(other, end) != before(ours, end)


def test_decisions_hang_on_what_was_read_and_not_on_the_steps() -> None:
    """By its steps no node is hot; the cycles read more."""
    pods = [RecordedPod(name=f"s{at}-1-0", service=f"s{at}", cpu=600.0, request=500.0) for at in range(12)]
    pods += [RecordedPod(name=f"s{at}-1-1", service=f"s{at}", node=1, cpu=200.0, request=500.0) for at in range(12)]
    found = recording(Recorded(nodes=NODES, steps=STEPS, pods=pods))
    times = every(300.0)
    assert not run(found).evictions
    assert run(read_by_cycles(found, times, more=np.full(len(times), 100.0))).evictions


def test_cycles_begin_when_those_of_the_recording_did() -> None:
    times = np.cumsum(np.full(100, 121.5)) + START + 200.0
    found = read_by_cycles(a_hot_node(), times, more=np.zeros(len(times)))
    strategies = [{"name": "LowNodeUtilization", "args": {"source": "CPU"}, "interval": "2m"}]
    ours = run(found, strategies=strategies)
    assert [each.at for each in ours.cycles[:99]] == times[:99].tolist()
    # a policy with another interval takes those that are near
    apart = np.diff([each.at for each in run(found).cycles[:30]])
    assert set(np.round(apart, 1)) <= {243.0, 364.5}


def test_where_no_cycle_is_recorded_they_begin_by_the_interval() -> None:
    assert CycleTimes(a_hot_node()).first(300.0) == START + 300.0
    late = every(300.0, first=450.0)
    times = CycleTimes(read_by_cycles(a_hot_node(), late, more=np.zeros(len(late))))
    assert times.first(300.0) == START + 450.0
    end = START + STEPS * STEP_SECONDS
    assert times.after(end, 300.0) == end + 300.0


def test_a_replacement_after_the_recorded_eviction_is_the_recorded_pod() -> None:
    pods = [
        RecordedPod(name="web-1-0", node=0, ends=5.0),
        RecordedPod(name="web-1-1", node=1, begins=5.0, replaced="web-1-0"),
        RecordedPod(name="web-1-2", node=1),
    ]
    found = recording(Recorded(pods=pods))
    ready = found.pods.ready.copy()
    ready[1] = START + 5 * STEP_SECONDS + 77.0
    found = replace(found, pods=replace(found.pods, ready=ready))

    def replaced_at(at: float) -> tuple[str, float]:
        cluster = cluster_of(found, as_recorded=False)
        cluster.run_to(at)
        cluster.evict(cluster.state.pods.names.index("web-1-0"))
        cluster.run_to(at + 200.0)
        return cluster.state.pods.names[-1], float(cluster.state.pods.ready_at[len(cluster.state.pods) - 1])

    assert replaced_at(START + 5 * STEP_SECONDS) == ("web-1-1", START + 5 * STEP_SECONDS + 77.0)
    name, at = replaced_at(START + 3 * STEP_SECONDS)
    assert name != "web-1-1"
    assert at < START + 4 * STEP_SECONDS


def test_readings_of_a_part_are_those_of_its_nodes_and_pods() -> None:
    times = every(1200.0)
    found = read_by_cycles(a_hot_node(), times, more=np.arange(float(len(times))))
    assert found.readings is not None
    nodes, pods = np.array([-1, 0, 1], dtype=np.int32), np.full(len(found.pods), -1, dtype=np.int32)
    pods[[2, 7]] = 0, 1
    part = found.readings.only(nodes, pods)
    assert part.node.tolist() == [0, 1] * len(times)
    assert part.pod.tolist() == [0, 1] * len(times)
    whole = found.readings.node_millicores.reshape(len(times), NODES)
    np.testing.assert_array_equal(part.node_millicores.reshape(len(times), 2), whole[:, 1:])
    assert part.node_start[3] == part.pod_start[3] == 6
