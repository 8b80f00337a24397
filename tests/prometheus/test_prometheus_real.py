"""Against a real Prometheus with series of kube-prometheus-stack's shape."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.reason import Reason
from tests.prometheus.builders import a_cluster, read, reader
from tests.real.servers.prometheus import (
    GIB,
    PrometheusServer,
    Series,
    cadvisor,
    kube_state_metrics,
    node_exporter,
    prometheus_server,
)

pytestmark = pytest.mark.real

NODES: dict[str, tuple[str, ...]] = {
    "one": ("10.0.0.1",),
    "two": ("10.0.0.2", "fd00::2"),
    # the API tells no address of these three
    "by-info": (),
    "by-uname": (),
    "twice": (),
    "stale": ("10.0.0.7",),
    "nan": ("10.0.0.8",),
    "missing": ("10.0.0.9",),
}
PODS = {"shop/web-0": "one", "shop/web-1": "two", "shop/db-0": "two", "shop/idle": "one"}


def stack() -> list[Series]:
    """A cluster as the exporters see it."""
    return [
        *node_exporter(instance="10.0.0.1:9100", nodename="one", cpus=4, busy_cores=1.25),
        # two jobs scrape one exporter
        *node_exporter(instance="[fd00::2]:9100", nodename="two", cpus=8, busy_cores=2.5),
        *node_exporter(instance="[fd00::2]:9100", nodename="two", cpus=8, busy_cores=2.5, job="extra"),
        *node_exporter(instance="192.168.7.3:9100", nodename="?", cpus=4, busy_cores=3.0),
        *node_exporter(instance="exporter-4:9100", nodename="BY-UNAME", cpus=4, busy_cores=0.5),
        # one exporter under two addresses: whose figures count can't be told
        *node_exporter(instance="172.16.0.5:9100", nodename="twice", cpus=4, busy_cores=1.0),
        *node_exporter(instance="172.16.0.6:9100", nodename="twice", cpus=4, busy_cores=2.0),
        *node_exporter(instance="10.0.0.7:9100", nodename="stale", cpus=4, busy_cores=1.0, ends_before_now=240),
        *node_exporter(instance="10.0.0.8:9100", nodename="nan", cpus=4, busy_cores=float("nan")),
        # a machine outside the cluster
        *node_exporter(instance="10.9.9.9:9100", nodename="nas", cpus=4, busy_cores=3.9),
        *cadvisor(namespace="shop", pod="web-0", node="one", containers={"app": 0.5, "proxy": 0.25}),
        *cadvisor(namespace="shop", pod="web-0", node="one", containers={"app": 0.5, "proxy": 0.25}, job="kubelet-2"),
        *cadvisor(namespace="shop", pod="web-1", node="two", containers={"app": 0.125}),
        *cadvisor(namespace="shop", pod="db-0", node="two", containers={"db": 0.1}),
        # where db-0 was a moment ago, and a pod that is gone
        *cadvisor(namespace="shop", pod="db-0", node="one", containers={"db": 0.8}),
        *cadvisor(namespace="shop", pod="gone", node="one", containers={"app": 0.2}),
        *kube_state_metrics(nodes={"by-info": "192.168.7.3"}, pods=[("shop", "web-0", "one")]),
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    with prometheus_server(stack()) as running:
        yield running


@pytest.fixture
def snapshot() -> ClusterSnapshot:
    return a_cluster(NODES, PODS)


def cpu_of(usage: Usage, snapshot: ClusterSnapshot) -> dict[str, float]:
    return dict(zip(snapshot.nodes.names, usage.node_cpu_millicores.tolist(), strict=True))


def codes_of(usage: Usage, snapshot: ClusterSnapshot) -> dict[str, Reason]:
    return {snapshot.nodes.names[index]: problem.code for index, problem in usage.problems.items()}


def test_nodes_are_read_to_the_digit_however_their_name_is_found(
    server: PrometheusServer, snapshot: ClusterSnapshot
) -> None:
    cpu = cpu_of(read(server.url, snapshot), snapshot)
    assert cpu["one"] == pytest.approx(1250, rel=1e-4)
    assert cpu["two"] == pytest.approx(2500, rel=1e-4), "two jobs for one exporter count once"
    assert cpu["by-info"] == pytest.approx(3000, rel=1e-4)
    assert cpu["by-uname"] == pytest.approx(500, rel=1e-4)


def test_every_node_that_cannot_be_trusted_has_its_reason(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    usage = read(server.url, snapshot)
    assert codes_of(usage, snapshot) == {
        "twice": Reason.AMBIGUOUS_NODE,
        "stale": Reason.STALE_SAMPLE,
        "nan": Reason.NOT_FINITE,
        "missing": Reason.NO_SAMPLE,
    }
    assert usage.coverage == 0.5
    assert "172.16.0.5:9100" in usage.problems[4].message
    assert "172.16.0.6:9100" in usage.problems[4].message
    assert usage.warnings == ()


def test_pods_are_their_containers_once_each(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    usage = read(server.url, snapshot)
    np.testing.assert_allclose(usage.pod_cpu_millicores, [750, 125, 100, np.nan], rtol=1e-4)


def test_what_left_a_node_is_still_measured_there(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    departed = read(server.url, snapshot).departed_millicores
    assert departed is not None
    np.testing.assert_allclose(departed, [1000, 0, 0, 0, 0, 0, 0, 0], rtol=1e-4)


def test_the_debounce_sees_distinct_raw_samples_over_its_whole_time(
    server: PrometheusServer, snapshot: ClusterSnapshot
) -> None:
    usage = read(server.url, snapshot, usage={"stabilizationWindow": {"samples": 3, "duration": "2m"}})
    assert usage.samples.shape == usage.sample_times.shape == (7, 8)
    np.testing.assert_allclose(usage.samples[:, 0], 1250, rtol=1e-4)
    times = usage.sample_times[:, 0]
    assert len(np.unique(times)) >= 3
    assert 105 <= times[-1] - times[0] <= 135
    assert np.all((usage.at - times[-1] >= 0) & (usage.at - times[-1] <= 16))
    assert np.isnan(usage.samples[:, list(usage.problems)]).all()


def test_usage_is_of_prometheus_own_now(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    assert read(server.url, snapshot).at == pytest.approx(time.time(), abs=5)


def test_promql_that_does_not_parse_is_answered_with_prometheus_own_words(
    server: PrometheusServer, snapshot: ClusterSnapshot
) -> None:
    own = {"query": "sum(rate(", "freshness": "timestamp(up)"}
    with pytest.raises(ConfigError, match=r"^usage\.prometheus\.nodeCPU\.query: .*parse error: unclosed left paren"):
        read(server.url, snapshot, nodeCPU=own)
    with pytest.raises(ConfigError, match=r"^usage\.prometheus\.podCPU\.query: .*parse error"):
        read(server.url, snapshot, podCPU={"query": "sum(("})


def test_a_share_of_ones_own_is_scaled_by_the_capacity(server: PrometheusServer) -> None:
    query = 'sum by (instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal",job="node-exporter"}[5m])) / 4'
    own = {"query": query, "freshness": "max by (instance) (timestamp(node_cpu_seconds_total))"}
    usage = read(server.url, a_cluster({"one": ("10.0.0.1",)}, cpu=2000), nodeCPU=own)
    assert usage.node_cpu_millicores[0] == pytest.approx(625, rel=1e-4)


def test_a_query_too_long_for_a_url_is_understood(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    padding = " or ".join(f'absent_{number}{{instance="none"}}' for number in range(100))
    own = {"query": f"(sum by (namespace, pod) (rate(container_cpu_usage_seconds_total[5m]))) or {padding}"}
    assert read(server.url, snapshot, podCPU=own).departed_millicores is None


def test_memory_of_nodes_and_pods_is_read_without_duplicates(
    server: PrometheusServer, snapshot: ClusterSnapshot
) -> None:
    memory = read(server.url, snapshot).resources[MEMORY]
    at = list(NODES).index
    assert (memory.node[at("one")], memory.capacity[at("one")]) == (4 * GIB, 16 * GIB)
    assert memory.node[at("two")] == 4 * GIB
    assert np.isnan(memory.node[at("missing")])
    np.testing.assert_allclose(memory.pod, [0.75 * GIB, 0.125 * GIB, 0.1 * GIB, np.nan])


def test_the_probe_tells_what_is_there_and_how_old(server: PrometheusServer) -> None:
    with closing(reader(server.url)) as opened:
        probe = opened.probe()
    assert probe.ok
    assert probe.version.startswith(("2.", "3."))
    assert {each.name: bool(each.series) for each in probe.metrics} == {
        "node_cpu_seconds_total": True,
        "container_cpu_usage_seconds_total": True,
        "kube_node_info": True,
        "node_uname_info": True,
        "memory of nodes": True,
        "capacity of nodes in memory": True,
        "memory of pods": True,
    }
    counters = [each for each in probe.metrics if not each.name.endswith(("memory", "nodes", "pods"))]
    assert all(each.newest_age_seconds is not None and 0 <= each.newest_age_seconds < 16 for each in counters)


def test_a_prometheus_without_any_of_the_metrics_says_what_to_install(snapshot: ClusterSnapshot) -> None:
    with prometheus_server([]) as empty:
        with pytest.raises(ConfigError) as caught:
            read(empty.url, snapshot)
        with closing(reader(empty.url)) as opened:
            probe = opened.probe()
    assert "node_cpu_seconds_total doesn't exist: install node_exporter" in str(caught.value)
    assert "container_cpu_usage_seconds_total doesn't exist: install cAdvisor" in str(caught.value)
    assert not probe.ok


def test_a_recording_rule_does_not_make_an_old_sample_fresh(snapshot: ClusterSnapshot) -> None:
    rules = """
groups:
  - name: node
    rules:
      - record: instance:node_cpu:cores
        expr: sum by (instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal"}[5m]))
"""
    series = [
        *node_exporter(instance="10.0.0.1:9100", nodename="one", cpus=4, busy_cores=1.25),
        *node_exporter(instance="10.0.0.7:9100", nodename="stale", cpus=4, busy_cores=1.0, ends_before_now=240),
    ]
    own: dict[str, Any] = {
        "query": "instance:node_cpu:cores",
        "unit": "cores",
        "freshness": "max by (instance) (timestamp(node_cpu_seconds_total))",
    }
    with prometheus_server(series, rules=rules) as running:
        usage = _once_recorded(running.url, snapshot, own)
    assert usage.node_cpu_millicores[0] == pytest.approx(1250, rel=0.1)
    assert usage.problems[5].code is Reason.STALE_SAMPLE
    assert usage.problems[5].message.startswith("the usage sample is too old: 24")


def _once_recorded(url: str, snapshot: ClusterSnapshot, own: dict[str, Any]) -> Usage:
    until = time.monotonic() + 20
    while True:
        try:
            return read(url, snapshot, nodeCPU=own)
        except ConfigError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_one_series_for_all_cpus_and_a_node_label_are_understood(snapshot: ClusterSnapshot) -> None:
    collapsed = [
        Series(metric=each.metric, labels={k: v for k, v in each.labels.items() if k != "cpu"}, rate=each.rate)
        for each in node_exporter(
            instance="10.1.1.1:9100", nodename="x", cpus=1, busy_cores=2.5, extra={"node": "missing"}
        )
    ]
    with prometheus_server(collapsed) as running:
        assert cpu_of(read(running.url, snapshot), snapshot)["missing"] == pytest.approx(2500, rel=1e-4)


def test_two_clusters_with_one_address_are_not_merged(snapshot: ClusterSnapshot) -> None:
    series = [
        each
        for cluster, busy in (("red", 0.5), ("blue", 3.0))
        for each in node_exporter(
            instance="10.0.0.1:9100", nodename="one", cpus=4, busy_cores=busy, extra={"cluster": cluster}
        )
    ]
    with prometheus_server(series) as running:
        usage = read(running.url, snapshot)
    assert usage.problems[0].code is Reason.AMBIGUOUS_NODE
    assert 'cluster="red"' in usage.problems[0].message


PASSWORD = "s3cret"
# bcrypt of PASSWORD, at the lowest cost
WEB_CONFIG = 'basic_auth_users: {us: "$2b$04$rbKqK8RG0zNp5wnWD7sf9O6BzZ2RZRIai3PT74CXmvDAcQy8ACGBK"}\n'


def test_a_password_is_asked_for_refused_and_accepted(tmp_path: Path, snapshot: ClusterSnapshot) -> None:
    file = tmp_path / "password"
    auth = {"username": "us", "passwordFile": str(file)}
    with prometheus_server(stack(), web_config=WEB_CONFIG) as running:
        with pytest.raises(ConnectError, match=r"rejects requests without credentials .* with 401"):
            read(running.url, snapshot)
        file.write_text("wrong-one")
        with pytest.raises(ConnectError, match="rejects the credentials with 401") as caught:
            read(running.url, snapshot, basicAuth=auth)
        file.write_text(PASSWORD + "\n")
        assert read(running.url, snapshot, basicAuth=auth).coverage == 0.5
    assert "wrong-one" not in str(caught.value)


def test_tls_is_checked_with_the_ca_of_the_policy(tmp_path: Path, snapshot: ClusterSnapshot) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=prometheus", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make, "-keyout", key, "-out", cert, *names], check=True, capture_output=True)
    config = f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n"
    with prometheus_server(stack(), web_config=config) as running:
        with pytest.raises(ConnectError, match=r"TLS fails: .*self-signed certificate"):
            read(running.url, snapshot)
        assert read(running.url, snapshot, caFile=str(cert)).coverage == 0.5
        assert read(running.url, snapshot, insecureSkipVerify=True).coverage == 0.5
        with pytest.raises(ConnectError, match="HTTP request to an HTTPS server"):
            read(running.url.replace("https", "http"), snapshot)
