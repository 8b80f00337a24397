"""Runs over a recording: the real cycles decide, and nothing comes from the future."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import RecordedAlert, Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.cycles.run import high_millicores, measured
from rebalancer.replay.runner.job import Job, Mode, run_job
from rebalancer.replay.runner.merge import most_in_flight
from tests.replay.builders import HIGH, START, Recorded, RecordedPod, policy, recording

STEPS = 72


def a_hot_node(*, steps: int = STEPS, seed: int = 1) -> Recording:
    """Three nodes, one of them hot from step 20 on."""
    random = np.random.default_rng(seed)
    pods = []
    for service in range(6):
        for at in range(3):
            node = 0 if at < 2 else 1 + service % 2
            course = np.full(STEPS, 450.0) + random.normal(0.0, 10.0, STEPS)
            if node == 0:
                course[20:] += 250.0
            pods.append(
                RecordedPod(
                    name=f"s{service}-1-{at}",
                    service=f"s{service}",
                    node=node,
                    cpu=course[:steps].tolist(),
                    request=500.0,
                )
            )
    return recording(Recorded(nodes=3, steps=steps, pods=pods, elsewhere=200.0))


def run(found: Recording, *, mode: Mode = "policy", **sections: object) -> ReplayRun:
    return run_job(Job(policy=policy(**sections), mode=mode, label=mode, high=HIGH), found, policy_run)


@pytest.fixture(scope="module")
def ours() -> ReplayRun:
    return run(a_hot_node())


def test_the_cycles_of_the_policy_cool_the_hot_node(ours: ReplayRun) -> None:
    found = a_hot_node()
    alone = run(found, mode="none")
    _, hot = measured(found, high_millicores(found, policy(), HIGH))
    assert alone.hot_node_minutes == pytest.approx(float(hot.sum()), rel=0.01)
    assert alone.hot_node_minutes > 100
    assert ours.hot_node_minutes < 0.5 * alone.hot_node_minutes
    assert ours.evictions
    assert ours.most_in_flight == most_in_flight(list(ours.evictions)) >= 1
    assert {each.node for each in ours.evictions} == {"node-0"}
    assert all(each.replaced.replaced_at is not None for each in ours.evictions)
    assert ours.until == found.end
    assert sum(each.evicted for each in ours.cycles) == len(ours.evictions)


def test_the_same_seed_gives_the_same_run(ours: ReplayRun) -> None:
    again = run(a_hot_node())
    assert [(each.at, each.pod, each.node) for each in again.evictions] == [
        (each.at, each.pod, each.node) for each in ours.evictions
    ]
    np.testing.assert_array_equal(again.share, ours.share)


@pytest.mark.parametrize("changed_from", [30, 50])
def test_what_comes_later_changes_no_decision_before_it(ours: ReplayRun, changed_from: int) -> None:
    found = a_hot_node()
    usage = found.usage["cpu"]
    values, node = usage.pod_values.copy().reshape(-1, STEPS), usage.node.copy()
    values[:, changed_from:] *= 0.2
    node[:, changed_from:] *= 0.2
    other = replace(found, usage={"cpu": replace(usage, pod_values=values.reshape(-1), node=node)})
    # and pods come and go later
    ended = found.pods.ended.copy()
    ended[3] = START + (changed_from + 5) * STEP_SECONDS
    other = replace(other, pods=replace(found.pods, ended=ended))
    changed, until = run(other), START + changed_from * STEP_SECONDS
    assert changed.share[0, -1] < ours.share[0, -1] / 2

    def before(of: ReplayRun) -> list[object]:
        return [
            *((each.at, each.uid, each.node, each.cpu_millicores) for each in of.evictions if each.at < until),
            *((each.at, each.hot, each.evicted, each.blocked) for each in of.cycles if each.at < until),
        ]

    assert before(changed) == before(ours)
    np.testing.assert_array_equal(changed.share[:, :changed_from], ours.share[:, :changed_from])


def test_limits_and_windows_of_the_policy_hold(ours: ReplayRun) -> None:
    few = run(a_hot_node(), limits={"cluster": {"evictions": [{"max": 1, "per": "1h"}]}})
    at = sorted(each.at for each in few.evictions)
    assert len(few.evictions) < len(ours.evictions)
    assert all(later - earlier >= 3600.0 for earlier, later in pairwise(at))
    assert any(each.blocked for each in few.cycles)


def test_a_run_that_is_stopped_is_as_far_as_it_came() -> None:
    reached: list[float] = []

    def stopping() -> bool:
        reached.append(1.0)
        return len(reached) > 30

    found = a_hot_node()
    part = run_job(Job(policy=policy(), mode="policy", label="p", high=HIGH), found, policy_run, stopping=stopping)
    assert START < part.until < found.end
    step = int((part.until - START) // STEP_SECONDS)
    assert np.isfinite(part.share[:, : step - 1]).all()
    assert np.isnan(part.share[:, step + 1 :]).all()


# ---- alerts and forecasts


def test_an_alert_asks_for_its_node_while_it_fires() -> None:
    """Node 0 uses 60 % all the time: less than `high` of its pool, more than that of the alert."""
    pods = [RecordedPod(name=f"s{at}-1-a", service=f"s{at}", node=0, cpu=1000.0, request=500.0) for at in range(6)] + [
        RecordedPod(name=f"s{at}-1-b", service=f"s{at}", node=1, cpu=300.0, request=500.0) for at in range(6)
    ]
    found = recording(Recorded(nodes=3, steps=STEPS, pods=pods))
    at, until = START + 30.4 * STEP_SECONDS, START + 40 * STEP_SECONDS
    alert = RecordedAlert(at, until, {"alertname": "NodeHot", "node": "node-0"}, {})
    rule = {"rules": [{"alert": "NodeHot", "strategy": "LowNodeUtilization", "high": 55, "target": 48}]}
    assert not run(found, alerts=rule).evictions
    alerted = run(replace(found, alerts=(alert,)), alerts=rule)
    assert alerted.evictions
    assert all(at <= each.at <= until for each in alerted.evictions)
    assert {each.trigger for each in alerted.cycles if each.evicted} == {"alert"}
    other = replace(found, alerts=(alert._replace(labels={"alertname": "NodeHot", "node": "node-2"}),))
    assert not run(other, alerts=rule).evictions
    elsewhere = replace(found, alerts=(alert._replace(labels={"alertname": "Unknown", "node": "node-0"}),))
    assert not run(elsewhere, alerts=rule).evictions
