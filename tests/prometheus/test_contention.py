"""Who waits for CPU: what is asked, when, and how answers are laid over nodes and pods."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.usage import Contention
from rebalancer.prometheus.promql.queries import contention_queries
from tests.prometheus.builders import OWN, Asked, a_cluster, a_source, by_query, fake_prometheus, read, usual, vector
from tests.real.servers.prometheus import node_exporter, node_pressure, prometheus_server, waiting

NAN = float("nan")
ASKED = contention_queries(a_source("http://127.0.0.1:1", **OWN))
PLAIN = contention_queries(a_source("http://127.0.0.1:1"))


def a_snapshot() -> ClusterSnapshot:
    return a_cluster({"one": (), "two": ()}, {"shop/web-0": "one", "shop/web-1": "two"})


def reported(nodes: Sequence[Any] = (), pods: Sequence[Any] = (), throttled: Sequence[Any] = ()) -> Contention:
    answers = usual({"one": 0.5, "two": 0.5})
    answers |= {ASKED.node.promql: vector(nodes), ASKED.pod.promql: vector(pods)}
    answers |= {ASKED.throttled.promql: vector(throttled)}
    with fake_prometheus(answers) as fake:
        found = read(fake.url, a_snapshot(), contention=True, **OWN).contention
    assert found is not None
    return found


def of(pod: str, node: str) -> dict[str, str]:
    return {"namespace": "shop", "pod": pod, "node": node}


def test_it_is_asked_only_when_it_is_wanted() -> None:
    with fake_prometheus(usual({"one": 0.5, "two": 0.5})) as fake:
        assert read(fake.url, a_snapshot(), **OWN).contention is None
        assert not any("waiting" in each.params["query"] or "cfs" in each.params["query"] for each in fake.asked)
        before = len(fake.asked)
        assert read(fake.url, a_snapshot(), contention=True, **OWN).contention is not None
        assert len(fake.asked) == 2 * before + 3
        # all at one moment
        assert len({each.params.get("time") for each in fake.asked[before + 1 :]}) == 1


def test_the_queries_take_the_worst_container_and_leave_out_pod_and_pause() -> None:
    assert PLAIN.node.promql == ("max by (instance, node, cluster) (rate(node_pressure_cpu_waiting_seconds_total[5m]))")
    named = 'container!="",container!="POD"'
    assert PLAIN.pod.promql == (
        f"max by (namespace, pod, node) (rate(container_pressure_cpu_waiting_seconds_total{{{named}}}[5m]))"
    )
    assert PLAIN.throttled.promql == (
        f"max by (namespace, pod, node) (rate(container_cpu_cfs_throttled_periods_total{{{named}}}[5m])"
        f" / rate(container_cpu_cfs_periods_total{{{named}}}[5m]))"
    )


def test_the_labels_and_the_window_are_the_policys() -> None:
    source = a_source(
        "http://127.0.0.1:1",
        usage={"rateWindow": "2m"},
        nodeCPU={"label": "host"},
        podCPU={"namespaceLabel": "ns", "podLabel": "pod_name", "nodeLabel": "node_name"},
    )
    asked = contention_queries(source)
    assert asked.node.promql == "max by (host, node, cluster) (rate(node_pressure_cpu_waiting_seconds_total[2m]))"
    assert asked.pod.promql.startswith("max by (ns, pod_name, node_name) (")


def test_shares_are_laid_over_nodes_and_pods() -> None:
    found = reported(
        nodes=[({"node": "two"}, 0.25), ({"node": "elsewhere"}, 0.9)],
        pods=[(of("web-0", "one"), 0.4), (of("web-1", "two"), 0.1), (of("gone", "two"), 0.9)],
        throttled=[(of("web-1", "two"), 0.75)],
    )
    np.testing.assert_array_equal(found.node_pressure, [NAN, 0.25])
    np.testing.assert_array_equal(found.pod_pressure, [0.4, 0.1])
    np.testing.assert_array_equal(found.pod_throttled, [NAN, 0.75])


@pytest.mark.parametrize(
    ("value", "share"), [(0.0, 0.0), (1.0, 1.0), (1.004, 1.0), (-0.1, NAN), ("NaN", NAN), ("+Inf", NAN)]
)
def test_what_is_no_share_is_not_known(value: Any, share: float) -> None:
    found = reported(
        nodes=[({"node": "one"}, value)], pods=[(of("web-0", "one"), value)], throttled=[(of("web-0", "one"), value)]
    )
    for column in (found.node_pressure, found.pod_pressure, found.pod_throttled):
        np.testing.assert_array_equal(column, [share, NAN])


def test_what_a_pod_waited_on_the_node_that_it_left_is_not_its_own_and_without_series_nothing_is_known() -> None:
    np.testing.assert_array_equal(reported(pods=[(of("web-0", "two"), 0.9)]).pod_pressure, [NAN, NAN])
    found = reported()
    for column in (found.node_pressure, found.pod_pressure, found.pod_throttled):
        assert np.isnan(column).all()


def test_a_node_whose_usage_is_not_trusted_tells_nothing_of_its_pressure() -> None:
    answers = usual({"one": 0.5}) | {ASKED.node.promql: vector([({"node": "one"}, 0.1), ({"node": "two"}, 0.2)])}
    with fake_prometheus(answers) as fake:
        found = read(fake.url, a_snapshot(), contention=True, **OWN).contention
    assert found is not None
    np.testing.assert_array_equal(found.node_pressure, [0.1, NAN])


def test_a_partial_answer_is_reported_and_an_error_ends_the_read() -> None:
    partial = vector([({"node": "one"}, 0.1)], warnings=["a store is down"])
    with fake_prometheus(usual({"one": 0.5, "two": 0.5}) | {ASKED.node.promql: partial}) as fake:
        assert read(fake.url, a_snapshot(), contention=True, **OWN).warnings == (
            "Interference, node pressure: a store is down",
        )
    usual_answer = by_query(usual({"one": 0.5, "two": 0.5}))

    def broken(asked: Asked) -> Any:
        if asked.params.get("query") == ASKED.pod.promql:
            return 400, {"status": "error", "errorType": "execution", "error": "too much"}
        return usual_answer(asked)

    with fake_prometheus(broken) as fake, pytest.raises(ConfigError, match=r"Interference, pod pressure.*too much"):
        read(fake.url, a_snapshot(), contention=True, **OWN)


@pytest.mark.real
def test_a_real_prometheus_answers_what_is_asked_by_default() -> None:
    snapshot = a_cluster({"one": ("10.0.0.1",), "two": ("10.0.0.2",)}, {"shop/web-0": "one", "shop/web-1": "two"})
    of_web = {"app": (0.3, 0.2), "proxy": (0.1, 0.5), "free": (0.2, None)}
    series = [
        *node_exporter(instance="10.0.0.1:9100", nodename="one", cpus=4, busy_cores=1.0),
        *node_exporter(instance="10.0.0.2:9100", nodename="two", cpus=4, busy_cores=1.0),
        node_pressure(instance="10.0.0.1:9100", share=0.4),
        # two jobs scrape one exporter
        node_pressure(instance="10.0.0.1:9100", share=0.4, job="extra"),
        *waiting(namespace="shop", pod="web-0", node="one", containers=of_web, whole=0.95),
        *waiting(namespace="shop", pod="web-1", node="two", containers={"app": (0.05, None)}),
    ]
    with prometheus_server(series) as running:
        found = read(running.url, snapshot, contention=True).contention
    assert found is not None
    np.testing.assert_allclose(found.node_pressure, [0.4, NAN], rtol=1e-3)
    np.testing.assert_allclose(found.pod_pressure, [0.3, 0.05], rtol=1e-3)
    np.testing.assert_allclose(found.pod_throttled, [0.5, NAN], rtol=1e-3)


def noisy_lab() -> Lab:
    """Two nodes; on `a` a pod bursts beyond what the node has, on `b` one is held by its limit."""
    nodes = [node(name, cpu=16, overhead_cores=0.0) for name in "ab"]
    workloads = [
        workload("noisy", place={"a": 1}, cpu={"base": 6.0, "burst_cores": 40.0, "burst_share": 0.5}),
        workload("web", place={"a": 2, "b": 1}, cpu=1.0),
        workload("limited", place={"b": 1}, cpu=2.0, cpu_limit="2"),
    ]
    return Lab.start(scenario(nodes=nodes, workloads=workloads, history_days=0.02), stepped=True)


RULE = "instance:node_cpu_utilisation:rate5m"
LAB = {
    "nodeCPU": {"query": RULE, "unit": "share", "freshness": f"timestamp({RULE})"},
    "podCPU": {"query": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"},
}


def test_the_lab_answers_the_default_queries() -> None:
    with noisy_lab() as lab:
        pods = {f"default/{each['metadata']['name']}": each["spec"]["nodeName"] for each in lab.cluster.pods()}
        addresses = {
            each["metadata"]["name"]: [address["address"] for address in each["status"]["addresses"]]
            for each in lab.cluster.nodes()
        }
        snapshot = a_cluster(addresses, pods, cpu=16_000.0, taken=lab.clock.now())
        usage = read(lab.prometheus_url, snapshot, contention=True, **LAB)
    found = usage.contention
    assert found is not None
    names = [each.rsplit("-", 2)[0] for each in snapshot.pods.names]
    pressure = dict(zip(names, found.pod_pressure.tolist(), strict=True))
    throttled = dict(zip(names, found.pod_throttled.tolist(), strict=True))
    # its bursts take half of the time; a pod that wants its whole limit is throttled half of it, in the lab
    np.testing.assert_allclose(found.node_pressure, [0.5, 0.5])
    assert pressure["noisy"] == pytest.approx(0.5)
    assert pressure["limited"] == pytest.approx(0.5)
    assert throttled["limited"] == pytest.approx(0.5)
    assert np.isnan(throttled["web"])
    waits = {
        pods[f"default/{name}"]: found.pod_pressure[at] for at, name in enumerate(snapshot.pods.names) if "web" in name
    }
    assert waits == pytest.approx({"a": 0.5, "b": 0.0})
