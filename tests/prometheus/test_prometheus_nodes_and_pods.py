"""Which node and which pod a series speaks of."""

import math
import random
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.series import PodLabels, SharedPodSeries
from rebalancer.prometheus.readings.nodes import NodeBy, NodeMap, host_of
from rebalancer.prometheus.readings.pods import PodUsage, pod_usage
from tests.prometheus.builders import a_cluster, fake_prometheus, read, vector

Table = dict[str, list[dict[str, str]]]


def node_map(
    nodes: Mapping[str, Sequence[str]], *, by: NodeBy = "Auto", label: str = "instance", reported: Table | None = None
) -> NodeMap:
    return NodeMap(
        nodes=a_cluster(nodes).nodes, label=label, by=by, label_sets=lambda metric: (reported or {}).get(metric, [])
    )


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("10.0.0.1:9100", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("[::1]:9100", "::1"),
        ("[fd00:0:0::01]", "fd00::1"),
        ("fd00::1", "fd00::1"),
        ("worker-1.example.com:9100", "worker-1.example.com"),
        ("http://worker-1:9100/metrics", "worker-1"),
        ("", ""),
    ],
)
def test_the_host_of_an_instance_is_found(instance: str, host: str) -> None:
    assert host_of(instance) == host


@pytest.mark.parametrize(
    "instance", ["a", "a:9100", "10.0.0.1:9100", "10.0.0.1", "[fd00::1]:9100", "[fd00:0::0:1]:9100", "a.local:9100"]
)
def test_auto_finds_a_node_by_name_and_by_each_of_its_addresses(instance: str) -> None:
    found = node_map({"b": [], "a": ["10.0.0.1", "fd00::1", "a.local"]})
    assert found.find({"instance": instance}) == (1,)


def test_auto_prefers_a_node_label_over_a_shared_instance() -> None:
    found = node_map({"a": ["10.0.0.1"], "b": ["10.0.0.1"]})
    assert found.find({"instance": "10.0.0.1:9100", "node": "b"}) == (1,)
    assert found.find({"instance": "10.0.0.1:9100", "node": "elsewhere"}) == (0, 1)


def test_auto_looks_an_instance_up_in_kube_node_info_then_in_node_uname_info() -> None:
    reported = {
        "kube_node_info": [
            {"node": "a", "internal_ip": "10.0.0.1"},
            {"node": "other-cluster", "internal_ip": "10.0.0.9"},
            {"exported_node": "c", "node": "ksm-host", "internal_ip": "10.0.0.3"},
        ],
        "node_uname_info": [{"instance": "srv:9100", "nodename": "B"}],
    }
    found = node_map({"a": [], "b": [], "c": []}, reported=reported)
    assert found.find({"instance": "10.0.0.1:9100"}) == (0,)
    assert found.find({"instance": "srv:9100"}) == (1,)
    assert found.find({"instance": "10.0.0.3:9100"}) == (2,)
    assert found.find({"instance": "10.0.0.9:9100"}) == ()
    assert found.find({}) == ()


def test_lookups_are_not_asked_for_while_names_and_addresses_do() -> None:
    def refuse(metric: str) -> list[dict[str, str]]:
        raise AssertionError(metric)

    found = NodeMap(nodes=a_cluster({"a": ["10.0.0.1"]}).nodes, label="instance", by="Auto", label_sets=refuse)
    assert found.find({"instance": "10.0.0.1:9100"}) == (0,)


def test_an_address_that_two_nodes_share_is_resolved_by_uname_where_that_is_there() -> None:
    nodes = {"a": ["10.0.0.1"], "b": ["10.0.0.1"]}
    assert node_map(nodes).find({"instance": "10.0.0.1:9100"}) == (0, 1)
    reported = {"node_uname_info": [{"instance": "10.0.0.1:9101", "nodename": "b"}]}
    assert node_map(nodes, reported=reported).find({"instance": "10.0.0.1:9101"}) == (1,)


@pytest.mark.parametrize(("by", "found"), [("Name", ()), ("Address", (0,)), ("NodeInfo", (1,)), ("Uname", (2,))])
def test_a_chosen_way_is_the_only_one(by: NodeBy, found: tuple[int, ...]) -> None:
    reported = {
        "kube_node_info": [{"node": "b", "internal_ip": "10.0.0.1"}],
        "node_uname_info": [{"instance": "10.0.0.1:9100", "nodename": "c"}],
    }
    mapped = node_map({"a": ["10.0.0.1"], "b": [], "c": []}, by=by, reported=reported)
    assert mapped.find({"instance": "10.0.0.1:9100", "node": "a"}) == found


def test_uname_is_joined_on_the_label_of_the_policy() -> None:
    reported = {"node_uname_info": [{"host": "x7", "instance": "1.2.3.4:9100", "nodename": "a"}]}
    assert node_map({"a": []}, by="Uname", label="host", reported=reported).find({"host": "x7"}) == (0,)


def test_nodes_that_share_an_address_are_both_skipped() -> None:
    now = time.time()
    snapshot = a_cluster({"a": ["10.0.0.1"], "b": ["10.0.0.1"], "c": ["10.0.0.3"]})
    series = [({"instance": "10.0.0.1:9100"}, 0.5), ({"instance": "10.0.0.3:9100"}, 0.5)]
    own, times = {"query": "cpu", "freshness": "time"}, [(labels, now) for labels, _ in series]
    answers = {"cpu": vector(series, at=now), "time": vector(times, at=now), "pods": vector([], at=now)}
    with fake_prometheus(answers) as fake:
        usage = read(fake.url, snapshot, nodeCPU=own, podCPU={"query": "pods"})
    assert {index: each.code for index, each in usage.problems.items()} == dict.fromkeys((0, 1), Reason.AMBIGUOUS_NODE)


def by_auto(snapshot: ClusterSnapshot) -> NodeMap:
    return NodeMap(nodes=snapshot.nodes, label="instance", by="Auto", label_sets=lambda _: [])


def a_decoder() -> decode.PodDecoder:
    return decode.PodDecoder(namespace="namespace", pod="pod", node="node")


def pods(snapshot: ClusterSnapshot, series: Sequence[tuple[str, str, str, str]]) -> PodUsage:
    """`series` = (namespace, pod or pod/container, node, value); an empty node is a missing label."""
    rows = []
    for namespace, name, node, value in series:
        pod, _, container = name.partition("/")
        labels = {"namespace": namespace, "pod": pod, "container": container, "node": node}
        rows.append(({label: each for label, each in labels.items() if each}, value))
    decoded = a_decoder().vector(decode.result(msgspec.Raw(msgspec.json.encode(vector(rows)["data"]))))
    return pod_usage(vector=decoded, snapshot=snapshot, node_map=by_auto(snapshot))


NODES = {"a": ["10.0.0.1"], "b": []}


def test_a_pods_series_on_the_node_that_it_left_counts_as_departed() -> None:
    usage = pods(a_cluster(NODES, {"db/pg-0": "b"}), [("db", "pg-0", "a", "0.4"), ("db", "pg-0", "b", "0.1")])
    assert usage.pods.tolist() == [100.0]
    assert usage.departed is not None
    assert usage.departed.tolist() == [400.0, 0.0]


def test_pods_that_are_gone_pending_or_finished_count_as_departed_where_they_ran() -> None:
    series = [("x", "gone", "a", "0.2"), ("x", "waits", "a", "0.3"), ("x", "elsewhere", "not-ours", "9")]
    usage = pods(a_cluster(NODES, {"x/waits": ""}), series)
    assert usage.departed is not None
    assert usage.departed.tolist() == [500.0, 0.0]
    assert np.isnan(usage.pods).all()
    done = pods(a_cluster(NODES, {"x/done": "a"}, phase=SUCCEEDED), [("x", "done", "a", "0.2")])
    assert done.departed is not None
    assert done.departed.tolist() == [200.0, 0.0]


def test_series_without_a_node_label_leave_departures_unknown_and_the_label_may_hold_an_address() -> None:
    usage = pods(a_cluster(NODES, {"x/p": "a"}), [("x", "p", "", "0.2"), ("x", "gone", "", "0.2")])
    assert usage.departed is None
    assert usage.pods.tolist() == [200.0]
    assert pods(a_cluster(NODES, {"x/p": "a"}), [("x", "p", "10.0.0.1:10250", "0.2")]).pods.tolist() == [200.0]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_a_pod_without_a_usable_number_is_unknown(value: str) -> None:
    usage = pods(a_cluster(NODES, {"x/p": "a"}), [("x", "p", "a", value), ("x", "gone", "a", value)])
    assert np.isnan(usage.pods).all()
    assert usage.departed is not None
    assert usage.departed.tolist() == [0.0, 0.0]


def test_a_query_with_one_series_for_each_container_is_summed_and_its_duplicates_are_not() -> None:
    series = [
        ("x", "p/app", "a", "0.2"),
        ("x", "p/app", "a", "0.2"),
        ("x", "p/proxy", "a", "0.1"),
        ("x", "p", "a", "0.31"),
        ("x", "gone/app", "a", "0.4"),
        ("x", "gone/proxy", "a", "0.1"),
    ]
    usage = pods(a_cluster(NODES, {"x/p": "a"}), series)
    assert usage.pods.tolist() == pytest.approx([310.0])
    assert usage.matched == 1
    assert usage.departed is not None
    assert usage.departed.tolist() == [500.0, 0.0]
    assert pods(a_cluster(NODES, {"x/p": "a"}), series[:3]).pods.tolist() == pytest.approx([300.0])


def test_series_that_come_again_are_joined_as_new_ones() -> None:
    chance = random.Random(5)
    decoder = a_decoder()
    names = [f"p{n}" for n in range(30)]
    known = a_cluster(NODES, {})
    for _ in range(60):
        on = {f"{chance.choice('xy')}/{name}": chance.choice(("a", "b", "")) for name in chance.sample(names, 20)}
        snapshot = a_cluster(NODES, on)
        series = []
        for _ in range(60):
            labels = {"namespace": chance.choice("xyz"), "pod": chance.choice(names)}
            if chance.random() < 0.8:
                labels["node"] = chance.choice(("a", "b", "other", "10.0.0.1:1"))
            if chance.random() < 0.3:
                labels["container"] = chance.choice(("app", "proxy"))
            series.append((labels, chance.choice(("0.5", "0.25", "NaN", "-1", "2"))))
        result = decode.result(msgspec.Raw(msgspec.json.encode(vector(series)["data"])))
        mapped = by_auto(snapshot)
        for each in (snapshot, snapshot, known):
            ours, fresh = (
                pod_usage(vector=by.vector(result), snapshot=each, node_map=mapped) for by in (decoder, a_decoder())
            )
            assert ours.pods.tolist() == pytest.approx(fresh.pods.tolist(), nan_ok=True)
            assert ours.pods.tolist() == pytest.approx(one_by_one(series, each, mapped), nan_ok=True)
            assert ours.matched == fresh.matched
            assert (ours.departed is None) == (fresh.departed is None)
            if ours.departed is not None and fresh.departed is not None:
                assert ours.departed.tolist() == pytest.approx(fresh.departed.tolist())


def a_table() -> tuple[SharedPodSeries, list[str]]:
    """A table, and the labels that it has decoded."""
    read = list[str]()

    def labels_of(blob: msgspec.Raw) -> PodLabels:
        read.append(bytes(blob).decode())
        return cast(PodLabels, SimpleNamespace(namespace="x", pod=bytes(blob).decode(), node="", container=""))

    return SharedPodSeries(labels_of), read


def test_an_answer_with_few_series_keeps_those_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.prometheus.promql.series.SPARE_SERIES", 10)
    table, read = a_table()
    many, few = ([msgspec.Raw(f'"{kind}{n}"'.encode()) for n in range(count)] for kind, count in (("m", 100), ("f", 3)))
    for _ in range(3):
        table.numbers(many)
        table.numbers(few)
    assert len(read) == 103
    for pods in range(5):  # other pods each time: those that are gone are dropped
        table.numbers([msgspec.Raw(f'"{pods}-{n}"'.encode()) for n in range(100)])
    read.clear()
    table.numbers(many)
    assert len(read) == 100


def test_readers_share_a_table_and_an_answer_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.prometheus.promql.series.SPARE_SERIES", 0)
    shared, read = a_table()
    snapshot = a_cluster(NODES, {"x/1": "a", "x/3": "a"})
    table, numbers = shared.numbers([msgspec.Raw(b"1"), msgspec.Raw(b"2"), msgspec.Raw(b"3")])
    later = [shared.numbers([msgspec.Raw(f"{turn}{n}".encode()) for n in range(3)])[0] for turn in range(4, 20)]
    assert later[0] is table  # of another reader
    assert later[-1] is not table  # most of its series were of pods that are gone
    pods, _, _ = table.columns(numbers)
    assert table.pods_of(snapshot)[pods].tolist() == [0, -1, 1]
    assert len(read) == len(set(read))


def one_by_one(series: list[tuple[dict[str, str], str]], snapshot: ClusterSnapshot, mapped: NodeMap) -> list[float]:
    """The usage of each pod, from the definition."""
    views: list[dict[str, list[float]]] = [{} for _ in snapshot.pods.names]
    spaces = [snapshot.namespaces[number] for number in snapshot.pods.namespace.tolist()]
    for labels, text in series:
        for pod, (space, name) in enumerate(zip(spaces, snapshot.pods.names, strict=True)):
            node = labels.get("node")
            here = node is None or (mapped.named(node) == snapshot.pods.node[pod] >= 0 and snapshot.active[pod])
            if here and (space, name) == (labels["namespace"], labels["pod"]):
                value = float(text) * 1000
                views[pod].setdefault(labels.get("container", ""), []).append(value if value >= 0 else math.nan)

    def largest(values: list[float]) -> float:
        return max((value for value in values if not math.isnan(value)), default=math.nan)

    out = []
    for found in views:
        parts = [largest(values) for container, values in found.items() if container]
        out.append(largest([largest(found.get("", [])), sum(parts) if parts else math.nan]))
    return out


def test_the_series_of_150000_pods_are_read() -> None:
    count = 150_000
    names = {f"ns-{i % 200}/app-{i % 997}-6f7c9d-{i:06x}": f"node-{i % 5000}" for i in range(count)}
    nodes = {f"node-{i}": (f"10.{i // 250}.{i % 250}.1",) for i in range(5000)}
    snapshot = a_cluster(nodes, names)
    rows = ",".join(
        f'{{"metric":{{"namespace":"{key.partition("/")[0]}","node":"{node}","pod":"{key.partition("/")[2]}"}},'
        f'"value":[1800000000.123,"0.{index:06d}"]}}'
        for index, (key, node) in enumerate(names.items())
    )
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{rows}]}}}}'.encode()
    decoded = a_decoder().vector(decode.result(decode.envelope(body).data))
    usage = pod_usage(vector=decoded, snapshot=snapshot, node_map=by_auto(snapshot))
    assert usage.matched == count
    assert usage.pods[149_999] == pytest.approx(149.999)
