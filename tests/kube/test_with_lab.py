"""The adapters against the practice cluster: a server that was not written for them."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.client.client import ApiClient, Retries, Timeouts
from rebalancer.kube.leader.lease import LeaseLock
from rebalancer.kube.metrics_server import MetricsServerUsage, probe_metrics_server
from rebalancer.kube.probe import lease_holder
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome, eviction_of
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.usage import StabilizationWindow, UsageSource
from tests.builders import pods_in
from tests.kube.fakes.api import client_of_lab

WEB_PODS = 600
"""More than a page."""


@pytest.fixture
def lab() -> Iterator[Lab]:
    nodes = [node("a", pods=2000), node("b", pods=2000)]
    workloads = [
        workload("web", place={"a": WEB_PODS}, cpu=0.01, cpu_request="5m", pdb={"min_available": WEB_PODS - 1}),
        workload("db", kind="StatefulSet", place={"b": 2}, cpu=0.5, pdb={"min_available": 2}),
        workload("twice", place={"b": 2}, cpu=0.5, pdb={"min_available": 1}),
        workload(
            "other", place={"b": 1}, cpu=0.1, pdb={"min_available": 0, "selector": {"app.kubernetes.io/name": "twice"}}
        ),
    ]
    with Lab.start(scenario(nodes=nodes, workloads=workloads, history_days=0.01), speed=20) as lab:
        yield lab


@pytest.fixture
def client(lab: Lab, tmp_path: Path) -> Iterator[ApiClient]:
    timeouts, retries = Timeouts(read_seconds=2.0), Retries(attempts=2, base_seconds=0.01)
    with client_of_lab(lab, tmp_path, timeouts=timeouts, retries=retries) as client:
        yield client


def move(snapshot: ClusterSnapshot, service: str, number: int = 0) -> Eviction:
    found = [pod for pod in pods_in(snapshot) if pod.service and pod.service.name == service]
    pod = found[number]
    return eviction_of(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node_name,
        pool="p",
        service=pod.service or Service(kind="", namespace="", name=""),
        strategy="s",
        reason="",
    )


def code_of(answer: Answer) -> Reason | None:
    return answer.refusal.code if answer.refusal else None


def test_the_whole_cluster_is_read(lab: Lab, client: ApiClient) -> None:
    snapshot = KubeCluster(client=client, clock=lab.clock).snapshot()
    assert snapshot.nodes.names == ("a", "b")
    assert len(snapshot.pods) == WEB_PODS + 5
    assert snapshot.pods.ready.all()
    first = next(pod for pod in pods_in(snapshot) if pod.name.startswith("web"))
    assert str(first.service) == "default/web"
    assert snapshot.replicas(int(snapshot.pods.owner[first.index])) == (WEB_PODS, WEB_PODS)
    assert {budget.name: budget.disruptions_allowed for budget in snapshot.budgets}["web"] == 1


def test_the_labs_autoscalers_are_read(tmp_path: Path) -> None:
    web = workload("web", place={"a": 3}, cpu=0.1, cpu_request="100m", hpa={"max_replicas": 6, "utilization": 70})
    one_node = scenario(nodes=[node("a")], workloads=[web], history_days=0.01)
    with Lab.start(one_node, speed=20) as lab, client_of_lab(lab, tmp_path) as client:
        (scaler,) = KubeCluster(client=client, clock=lab.clock).snapshot().autoscalers
    assert (scaler.namespace, scaler.name, scaler.target) == ("default", "web", ("Deployment", "web"))


def test_continue_tokens_that_always_expire_make_the_list_unsafe(lab: Lab, client: ApiClient) -> None:
    lab.faults.set(expire_continue=True)
    with pytest.raises(UnsafeDataError, match="pods broke half-way"):
        KubeCluster(client=client, clock=lab.clock).snapshot()
    lab.faults.clear()
    assert len(KubeCluster(client=client, clock=lab.clock).snapshot().pods) == WEB_PODS + 5


@pytest.mark.parametrize("fault", ["error_share", "throttled_share", "cut_share"])
def test_a_sick_server_ends_in_one_line(lab: Lab, client: ApiClient, fault: str) -> None:
    lab.faults.set(**{fault: 1.0})
    with pytest.raises(ConnectError) as caught:
        KubeCluster(client=client, clock=lab.clock).snapshot()
    assert lab.url in str(caught.value)
    assert "\n" not in str(caught.value)


def test_evictions_are_answered_as_a_cluster_answers(lab: Lab, client: ApiClient) -> None:
    snapshot = KubeCluster(client=client, clock=lab.clock).snapshot()
    evictor = KubeEvictor(client=client, term=lambda: 3)
    assert evictor.evict(move(snapshot, "web"), server_dry_run=True).outcome == Outcome.PLANNED
    assert evictor.evict(move(snapshot, "web")).outcome == Outcome.EVICTED
    assert code_of(evictor.evict(move(snapshot, "web"))) in (Reason.TERMINATING, Reason.SERVER_GONE)
    assert code_of(evictor.evict(move(snapshot, "db"))) == Reason.SERVER_BUDGET
    assert code_of(evictor.evict(move(snapshot, "twice"))) == Reason.SERVER_SEVERAL_BUDGETS


def test_an_eviction_that_answers_too_late_is_unknown_and_settled_by_a_second_look(lab: Lab, client: ApiClient) -> None:
    cluster = KubeCluster(client=client, clock=lab.clock)
    planned = move(cluster.snapshot(), "web")
    lab.faults.set(eviction_delay_seconds=3.0)
    answer = KubeEvictor(client=client).evict(planned)
    lab.faults.clear()
    assert (answer.outcome, code_of(answer)) == (Outcome.UNKNOWN, Reason.SERVER_UNKNOWN)
    state = cluster.pod_states([(planned.namespace, planned.pod)]).get((planned.namespace, planned.pod))
    assert state is None or state.terminating


def test_only_one_holds_the_lease(lab: Lab, client: ApiClient) -> None:
    def lock(identity: str, ledger: str = "one") -> LeaseLock:
        return LeaseLock(
            client=client, namespace="default", name="rebalancer", identity=identity, ledger_identity=ledger
        )

    with lock("first") as first:
        assert first.holds(5)
        with pytest.raises(UnsafeDataError, match="held by first"):
            lock("second").acquire()
        with pytest.raises(UnsafeDataError, match="ledger"):
            lock("second", "two").acquire()
    with lock("second") as second:
        assert second.term == 2


def test_metrics_server_is_read(lab: Lab, client: ApiClient) -> None:
    snapshot = KubeCluster(client=client, clock=lab.clock).snapshot()
    policy = UsageSource(source="MetricsServer", stabilizationWindow=StabilizationWindow(samples=1))
    usage = MetricsServerUsage(client=client, policy=policy, clock=lab.clock).read(snapshot)
    assert not usage.problems
    assert np.isfinite(usage.node_cpu_millicores).all()
    assert usage.node_cpu_millicores[0] > 1000 * 0.01 * WEB_PODS * 0.5
    lab.faults.set(missing=("b",))
    usage = MetricsServerUsage(client=client, policy=policy, clock=lab.clock).read(snapshot)
    assert [problem.code for problem in usage.problems.values()] == [Reason.NO_SAMPLE]


def test_the_probe_finds_the_labs_metrics(lab: Lab, client: ApiClient) -> None:
    assert probe_metrics_server(client, wall_time=lab.clock.now).startswith("metrics of 2 nodes, ")


def test_the_lease_of_the_lab_names_its_holder(lab: Lab, client: ApiClient) -> None:
    assert lease_holder(client, "default", "rebalancer") is None
    with LeaseLock(client=client, namespace="default", name="rebalancer", identity="me", ledger_identity="one"):
        held = lease_holder(client, "default", "rebalancer")
    assert held is not None
    assert re.fullmatch(r"me, renewed \d+ s ago", held)
