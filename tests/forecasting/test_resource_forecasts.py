"""Forecasts of resources that only the policy names: shares, and amounts with a capacity."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.forecasting.resources import resource_of
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import SLOTS, DayBlock, History
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.policy import RebalancerPolicy
from tests.builders import GIB, a_node, a_pod, a_policy, cluster, usage_of
from tests.forecast.builders import AGED, DAYS, MIDNIGHT, TODAY

DISK = {"name": "disk-busy", "node": "node:disk", "pod": "pod:disk"}
LICENCES = {"name": "licences", "node": "node:licences", "capacity": "node:licences:all", "pod": "pod:licences"}


@dataclass
class Keeper:
    """Eight days that end at midnight, for four hours at the level (in units of day blocks), else at half of it."""

    level: float
    begins: int = SLOTS // 3

    def update(self, _: ClusterSnapshot) -> History:
        grid = np.full((1, SLOTS), self.level / 2, dtype=np.float32)
        grid[:, self.begins : self.begins + SLOTS // 6] = self.level
        days = range(TODAY - DAYS, TODAY)
        return History(
            days=[
                DayBlock(day=day, pods=("shop/web-0",), pod_millicores=grid, nodes=("a",), node_millicores=grid)
                for day in days
            ]
        )


@dataclass
class Clock:
    at: float = MIDNIGHT

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def named(*resources: Any, thresholds: Sequence[str] = ()) -> RebalancerPolicy:
    marks = {name: {"high": 80, "target": 65, "low": 40} for name in thresholds}
    pool = {"name": "general", "selector": {"matchLabels": {"pool": "general"}}}
    return a_policy(
        pools=[{**pool, "thresholds": {"high": 75, "target": 65, "low": 50, "resources": marks}}],
        usage={"prometheus": {"url": "http://127.0.0.1:9090", "resources": list(resources)}},
    )


NODES, PODS = [a_node("a", used=500.0)], [a_pod("web-0", "a", owner="web", used=100.0, age=AGED)]


def a_loop(policy: RebalancerPolicy, **levels: float) -> ForecastLoop:
    keepers: Any = {"cpu": Keeper(500.0), **{name: Keeper(level) for name, level in levels.items()}}
    return ForecastLoop(policy=policy, keepers=keepers, clock=Clock())


def test_a_share_is_forecast_with_lines_of_the_policy_only() -> None:
    loop = a_loop(named(DISK, thresholds=["disk-busy"]), **{"disk-busy": 900.0})
    snapshot = cluster(NODES, PODS)
    run = loop.look(snapshot)
    peaks = loop.peaks(snapshot, MIDNIGHT)
    assert peaks is not None
    assert peaks.resources["disk-busy"].node_millicores[0] == pytest.approx(900.0, rel=0.05)
    (coming,) = run.coming
    assert (coming.resource, coming.node_name, coming.high) == ("disk-busy", "a", 0.8)
    assert coming.why.startswith("disk-busy peak 86.4%")


def test_an_amount_is_forecast_once_a_cycle_has_read_its_capacity() -> None:
    loop = a_loop(named(LICENCES, thresholds=["licences"]), licences=90_000.0)
    snapshot = cluster(NODES, PODS)
    loop.look(snapshot)
    peaks = loop.peaks(snapshot, MIDNIGHT)
    assert peaks is not None
    assert dict(peaks.resources) == {}
    used = ResourceUsage(
        node=np.array([90.0]), capacity=np.array([100.0]), pod=np.array([90.0]), samples=np.array([[90.0]])
    )
    loop.record_usage(snapshot, usage_of(snapshot, NODES, PODS, resources={"licences": used}))
    (coming,) = loop.look(snapshot).coming
    assert (coming.resource, coming.peak_share) == ("licences", pytest.approx(0.9, rel=0.05))


def test_without_thresholds_nothing_is_ahead_of_a_peak() -> None:
    loop = a_loop(named(DISK), **{"disk-busy": 900.0})
    assert loop.look(cluster(NODES, PODS)).coming == ()


def test_a_node_that_is_new_counts_with_the_usual_capacity() -> None:
    policy = named(LICENCES, thresholds=["licences"])
    assert resource_of("licences", policy, {"licences": {"b": float("nan")}}) is None
    resource = resource_of("licences", policy, {"licences": {"b": 10.0, "c": 10.0, "d": 40.0}})
    assert resource is not None
    assert resource.capacity(cluster(NODES, PODS)).tolist() == [10_000.0]


def test_a_node_is_due_by_each_resource_whose_relief_cannot_wait() -> None:
    policy = named(DISK, thresholds=["disk-busy"])
    changes = {"forecast": {"mode": "Act"}, "guards": {"min_replicas": 1}}
    policy = policy.model_copy(
        update={name: getattr(policy, name).model_copy(update=fields) for name, fields in changes.items()}
    )

    def due(**begins: int) -> list[tuple[str, str]]:
        keepers: Any = {"cpu": Keeper(14_000.0, begins["cpu"]), "disk-busy": Keeper(900.0, begins["disk"])}
        loop = ForecastLoop(policy=policy, keepers=keepers, clock=Clock(MIDNIGHT + 300.0))
        request = loop.look(cluster(NODES, PODS)).request()
        return [] if request is None else sorted(request.due)

    soon, later = 3, SLOTS // 2
    assert due(cpu=soon, disk=soon) == [("a", "cpu"), ("a", "disk-busy")]
    assert due(cpu=soon, disk=later) == [("a", "cpu")]
    assert due(cpu=later, disk=soon) == [("a", "disk-busy")]


def test_memory_of_metrics_server_is_forecast_as_a_share_of_allocatable() -> None:
    made = cluster([a_node("a", memory=8 * GIB)], [])
    made = replace(made, nodes=replace(made.nodes, memory_allocatable_bytes=np.array([6.0 * GIB])))
    by_source = {}
    for source in ("Prometheus", "MetricsServer"):
        url = {"prometheus": {"url": "http://127.0.0.1:9090"}} if source == "Prometheus" else {}
        resource = resource_of("memory", a_policy(usage={"source": source, **url}), {})
        assert resource is not None
        by_source[source] = resource.capacity(made).tolist()
    assert by_source == {"Prometheus": [8192.0], "MetricsServer": [6144.0]}


def test_what_a_departed_pod_had_of_its_own_is_known_from_the_cycles_before() -> None:
    """Of the 1,000 MiB of its working set a quarter was anonymous memory."""
    policy = a_policy(usage={"prometheus": {"url": "http://127.0.0.1:9090"}})
    loop, there, gone = a_loop(policy, memory=1_000.0), cluster(NODES, PODS), cluster(NODES, [])
    loop.look(there)

    def used(*pods: float) -> ResourceUsage:
        sizes = np.array(pods) * GIB
        node = np.array([8.0 * GIB])
        return ResourceUsage(node=node, capacity=2 * node, pod=sizes, relief=sizes / 4, samples=node[None, :])

    def peak(snapshot: ClusterSnapshot) -> float:
        peaks = loop.peaks(snapshot, MIDNIGHT)
        assert peaks is not None
        return float(peaks.resources["memory"].node_millicores[0])

    loop.record_usage(there, usage_of(there, NODES, PODS, resources={"memory": used(1.0)}))
    before = peak(there)
    loop.record_usage(gone, usage_of(gone, NODES, [], resources={"memory": used()}))
    assert peak(gone) == pytest.approx(0.75 * before, rel=0.05)
