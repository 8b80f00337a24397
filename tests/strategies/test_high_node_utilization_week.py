"""Drain goes by the week ahead. A node has 16,000 millicores and a target of 10,400; a drain leaves 800 of it free."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import PEAK, WEEK
from rebalancer.model.measured.history import SLOTS, Grid
from rebalancer.model.measured.peaks import Peaks
from rebalancer.strategies.utilization.high_node_utilization import find
from tests.builders import APod, a_node, a_pod, a_policy, cluster, replicas, usage_of, view_of
from tests.forecast.builders import expect, history, look
from tests.strategies.builders.emptied import Plan
from tests.strategies.builders.finding import strategy_policy

AGED = 60 * 86_400.0
NIGHT = 150.0
"""Millicores of a pod at night and at the weekend."""
WORK, REST = "work", "rest"
SUNDAY_NIGHT = [WORK] * 6 + [REST] * 2
MONDAY_EVENING = [WORK] * 5 + [REST] * 2 + [WORK]
TARGET = 10_400.0


def a_week(days: Sequence[str], busy: float) -> Grid:
    """(8, 288) a pod at `busy` from 08:00 to 18:00 on workdays, and at NIGHT otherwise."""
    series = np.full((len(days), SLOTS), NIGHT, dtype=np.float32)
    series[[day == WORK for day in days], 96:216] = busy
    return series


def services(count: int, each: int = 4) -> list[APod]:
    """Nodes n0, n1, ... with a service of `each` pods of their own."""
    return [
        pod
        for node in range(count)
        for pod in replicas(f"web{node}", {f"n{node}": each}, used=NIGHT, cpu=500.0, age=AGED)
    ]


def peaks_after(days: Sequence[str], busy: Mapping[str, float] | float, made: ClusterSnapshot) -> Peaks:
    """Forecast at the end of the last of the days; `busy` of all pods, or by node."""
    level = {name: busy if isinstance(busy, float) else busy[name] for name in made.nodes.names}
    pods = zip(made.pods.names, made.pods.node.tolist(), strict=True)
    past = {f"shop/{name}": a_week(days, level[made.nodes.names[node]]) for name, node in pods}
    return expect(history(past), made)


def drained(days: Sequence[str], busy: float, *, nodes: int = 2, pods: Sequence[APod] | None = None) -> Plan:
    policy = strategy_policy("HighNodeUtilization", {"maxConcurrentNodes": 8}, guards={"minReplicas": 1})
    return Plan(
        [a_node(f"n{index}") for index in range(nodes)],
        services(nodes) if pods is None else pods,
        policy,
        steered_at_most=nodes,
        peaks=lambda made: peaks_after(days, busy, made),
    )


def packed(days: Sequence[str], busy: float, *, nodes: int) -> list[int]:
    """Pods on each node that has some, after as many plans as there are moves for."""
    pods = services(nodes)
    for _ in range(3 * nodes):
        plan = drained(days, busy, nodes=nodes, pods=pods)
        if not plan.moves:
            break
        landings = {name: landing for name, _, landing in plan.moves}
        pods = [replace(pod, node=landings.get(pod.name, pod.node)) for pod in pods]
    return sorted(Counter(pod.node for pod in pods).values())


def test_the_weeks_peak_is_the_highest_of_the_last_seven_days() -> None:
    made = cluster([a_node("n0"), a_node("n1")], services(2))
    peaks = peaks_after(SUNDAY_NIGHT, {"n0": 1_500.0, "n1": 500.0}, made)
    assert peaks.week is not None
    assert peaks.week.node_millicores == pytest.approx([6_000.0, 2_000.0], rel=0.01)
    assert peaks.week.pod_millicores == pytest.approx([1_500.0] * 4 + [500.0] * 4, rel=0.01)
    assert (peaks.week.node_millicores >= peaks.node_millicores).all()
    # the eighth day is the same weekday as the last
    eighth = peaks_after([WORK] + [REST] * 7, 1_500.0, made)
    assert eighth.week is not None
    assert (eighth.week.node_millicores < 4_000.0).all()


def test_a_pod_that_arrived_later_counts_with_its_week() -> None:
    nodes, pods = [a_node("n0"), a_node("n1")], services(2)
    past = history({f"shop/{pod.name}": a_week(SUNDAY_NIGHT, 1_500.0) for pod in pods})
    before = look(past, cluster(nodes, pods))
    replacement = a_pod("web0-new", "n1", owner="web0", used=NIGHT, cpu=500.0, age=60.0)
    week = before.peaks(cluster(nodes, [*pods[1:], replacement]), now=before.made_at).week
    assert week is not None
    assert week.node_millicores[1] == pytest.approx(7_500.0, rel=0.01)
    assert week.pod_millicores[-1] == pytest.approx(1_500.0, rel=0.01)


@pytest.mark.parametrize("busy", [1_500.0, 2_200.0])
def test_on_sunday_night_nothing_is_drained_that_would_be_over_target_on_monday(busy: float) -> None:
    plan = drained(SUNDAY_NIGHT, busy)
    assert plan.moves == []
    assert plan.cordoned == []
    # two nodes at noon: over the target
    assert 8 * busy > TARGET


@pytest.mark.parametrize("days", [SUNDAY_NIGHT, MONDAY_EVENING])
@pytest.mark.parametrize(("busy", "used"), [(1_000.0, 4), (2_000.0, 8), (500.0, 2)])
def test_eight_nodes_are_packed_onto_as_many_as_a_workday_needs(days: Sequence[str], busy: float, used: int) -> None:
    """Up to 9,600 millicores at noon are allowed: 9, 4 and 19 pods, and whole nodes of four are drained."""
    held = packed(days, busy, nodes=8)
    assert held[-1] * busy <= TARGET - 800.0
    assert len(held) == used


def test_without_a_week_the_loads_are_as_before() -> None:
    nodes, pods = [a_node("n0"), a_node("n1")], services(2)
    made = cluster(nodes, pods)
    policy = a_policy(strategies=[{"name": "HighNodeUtilization"}])
    peaks = peaks_after(SUNDAY_NIGHT, 1_500.0, made)
    resources = []
    for each in (peaks, replace(peaks, week=None), None):
        loads = find(view_of(made, usage_of(made, nodes, pods), policy, peaks=each)).loads
        assert loads is not None
        resources.append(loads.resources)
    assert resources == [("cpu", PEAK, WEEK), ("cpu", PEAK), ("cpu",)]


def test_a_drain_by_requests_goes_by_the_week_too() -> None:
    nodes, pods = [a_node("n0"), a_node("n1")], services(2)
    low = {"cpu": 50, "memory": 50, "pods": 50}
    pool = {
        "name": "general",
        "selector": {},
        "thresholds": {"high": 75, "target": 65, "low": 50},
        "requestThresholds": {"high": dict.fromkeys(low, 90), "target": dict.fromkeys(low, 80), "low": low},
    }
    args = {"source": "Requests"}
    policy = strategy_policy("HighNodeUtilization", args, guards={"minReplicas": 1}, pools=[pool])
    for busy, drains in ((1_000.0, True), (1_500.0, False)):
        plan = Plan(nodes, pods, policy, peaks=lambda made, busy=busy: peaks_after(SUNDAY_NIGHT, busy, made))
        assert bool(plan.moves) is drains
