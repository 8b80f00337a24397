from typing import Any

import numpy as np
import pytest

from rebalancer.kube.metrics_server import MetricsServerUsage, duration_seconds, probe_metrics_server
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.kube.snapshot.times import rfc3339_micro
from rebalancer.model.errors import ConnectError
from rebalancer.model.measured.usage import Usage
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.usage import StabilizationWindow, UsageSource
from tests.kube.builders import Cluster, Json, a_node, a_pod
from tests.kube.fakes.api import Asked, FakeApi, FakeClock, Reply, client_of, serving, status

START = 1_800_000_000.0
ONCE = StabilizationWindow(samples=1)


def node_metrics(name: str, cpu: str, at: float) -> Json:
    return {
        "metadata": {"name": name, "creationTimestamp": None},
        "timestamp": rfc3339_micro(at)[:19] + "Z",
        "window": "20.5s",
        "usage": {"cpu": cpu, "memory": "1Gi"},
    }


def pod_metrics(name: str, *cpus: str, at: float = START) -> Json:
    containers = [{"name": f"c{i}", "usage": {"cpu": cpu}} for i, cpu in enumerate(cpus)]
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": rfc3339_micro(at)[:19] + "Z",
        "containers": containers,
    }


def read(
    *,
    nodes: Any,
    pods: list[Json] | None = None,
    stabilization_window: StabilizationWindow = ONCE,
    metrics: Reply | None = None,
) -> tuple[Usage, FakeApi, FakeClock]:
    clock = FakeClock(START + 10)
    cluster = Cluster(nodes=[a_node("n1"), a_node("n2"), a_node("n3")], pods=[a_pod("a"), a_pod("b"), a_pod("c")])

    def script(asked: Asked) -> Reply:
        if not asked.path.startswith("/apis/metrics.k8s.io/v1beta1/"):
            return cluster(asked)
        if metrics is not None:
            return metrics
        return Reply(body={"items": nodes(clock.now()) if asked.path.endswith("/nodes") else pods or []})

    with FakeApi(script) as api:
        client = client_of(api.url)
        try:
            snapshot = KubeCluster(client=client, clock=clock).snapshot()
            api.asked.clear()
            policy = UsageSource.model_validate(
                {"source": "MetricsServer", "stabilizationWindow": stabilization_window}
            )
            usage = MetricsServerUsage(client=client, policy=policy, clock=clock).read(snapshot)
        finally:
            client.close()
        return usage, api, clock


def test_nodes_and_pods_get_their_cpu_in_millicores() -> None:
    usage, _, _ = read(
        nodes=lambda _: [node_metrics("n1", "1500m", START), node_metrics("n2", "250000000n", START - 5)],
        pods=[pod_metrics("a", "100m", "50m"), pod_metrics("b", "1"), pod_metrics("elsewhere", "9")],
    )
    assert usage.node_cpu_millicores.tolist()[:2] == [1500.0, 250.0]
    assert usage.pod_cpu_millicores.tolist()[:2] == [150.0, 1000.0]
    assert np.isnan(usage.pod_cpu_millicores[2])
    assert usage.sample_times[0].tolist()[:2] == [START, START - 5]
    assert usage.at == START + 10
    assert usage.window_seconds == pytest.approx(20.5 + 15)
    assert usage.departed_millicores is None
    assert usage.coverage == pytest.approx(2 / 3)


def test_nodes_that_cannot_be_trusted_have_a_reason() -> None:
    usage, _, _ = read(nodes=lambda _: [node_metrics("n1", "inf", START), node_metrics("n2", "1", START - 600)])
    assert {node: problem.code for node, problem in usage.problems.items()} == {
        0: Reason.NOT_FINITE,
        1: Reason.STALE_SAMPLE,
        2: Reason.NO_SAMPLE,
    }
    assert np.isnan(usage.node_cpu_millicores).all()


@pytest.mark.parametrize("cpu", ["", "NaN", "-5", "lots", "1e999"])
def test_nonsense_is_not_a_number_and_never_zero(cpu: str) -> None:
    usage, _, _ = read(nodes=lambda _: [node_metrics("n1", cpu, START)], pods=[pod_metrics("a", "1", cpu)])
    assert usage.problems[0].code == Reason.NOT_FINITE
    assert np.isnan(usage.pod_cpu_millicores[0])


def test_a_stale_pod_sample_is_not_known() -> None:
    usage, _, _ = read(nodes=lambda _: [], pods=[pod_metrics("a", "1", at=START - 600)])
    assert np.isnan(usage.pod_cpu_millicores[0])


def scraped_every_15_seconds(now: float) -> list[Json]:
    at = now - now % 15
    return [node_metrics(name, f"{int(at - START) + 1000}m", at) for name in ("n1", "n2", "n3")]


def test_it_waits_for_distinct_samples_over_the_stabilization_window() -> None:
    usage, _, clock = read(
        nodes=scraped_every_15_seconds,
        stabilization_window=StabilizationWindow.model_validate({"samples": 3, "duration": "60s"}),
    )
    times = usage.sample_times[:, 0]
    assert len(np.unique(times)) == len(times) >= 3
    assert times[-1] - times[0] >= 60
    assert (np.diff(times) > 0).all()
    assert usage.samples[-1].tolist() == usage.node_cpu_millicores.tolist()
    assert clock.now() - START < 10 + 80


def test_it_gives_up_after_twice_the_stabilization_window() -> None:
    usage, _, clock = read(
        nodes=lambda _: [node_metrics("n1", "1", START + 10)],
        stabilization_window=StabilizationWindow.model_validate({"samples": 3, "duration": "60s"}),
    )
    assert clock.now() == pytest.approx(START + 10 + 120)
    assert usage.samples.shape == (1, 3)


def test_one_sample_needs_no_waiting() -> None:
    _, api, clock = read(nodes=scraped_every_15_seconds)
    assert clock.now() == START + 10
    assert api.count("GET", "/nodes") == 1


@pytest.mark.parametrize("code", [404, 503])
def test_a_missing_metrics_api_names_the_fix(code: int) -> None:
    with pytest.raises(ConnectError, match="install metrics-server"):
        read(nodes=lambda _: [], metrics=status(code, "the server could not find the requested resource"))


def test_durations_are_gos() -> None:
    assert duration_seconds("1m30.5s") == 90.5
    assert duration_seconds("20ms") == pytest.approx(0.02)
    assert duration_seconds("") == 0


def probed(reply: Reply) -> str:
    with serving(lambda _: reply) as (_, client):
        return probe_metrics_server(client, wall_time=lambda: START + 10)


def test_the_probe_says_how_many_nodes_have_metrics_and_how_old_they_are() -> None:
    both = [node_metrics("n1", "1", START - 30), node_metrics("n2", "1", START + 2)]
    assert probed(Reply(body={"items": both})) == "metrics of 2 nodes, 8 to 40 s old"
    undated = node_metrics("n1", "1", START) | {"timestamp": ""}
    assert probed(Reply(body={"items": [undated]})) == "metrics of 1 node, of unknown age"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (status(404, "the server could not find the requested resource"), "install metrics-server"),
        (status(403, "no"), "not allowed to list nodes"),
        (Reply(body={"items": []}), "metrics of no node"),
    ],
)
def test_the_probe_names_what_is_wrong(reply: Reply, why: str) -> None:
    with pytest.raises(ConnectError, match=why):
        probed(reply)
