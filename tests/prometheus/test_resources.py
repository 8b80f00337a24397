"""Memory, and resources that the policy names with queries of its own."""

import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.promql.queries import default_memory_queries
from tests.prometheus.builders import OWN, a_cluster, by_query, fake_prometheus, read, reader, usual, vector

GIB = 2.0**30
DISK = {"name": "disk-busy", "node": "disk:node", "pod": "disk:pod"}


def two_nodes() -> ClusterSnapshot:
    return a_cluster({"n1": ("10.0.0.1",), "n2": ("10.0.0.2",)}, {"shop/web-0": "n1"})


def memory_answers(at: float) -> dict[str, Any]:
    """What kube-prometheus-stack answers to the default queries."""
    queries = default_memory_queries(Prometheus.model_validate({"url": "http://127.0.0.1", **OWN}))
    assert queries.capacity is not None
    return {
        queries.node.promql: vector([({"node": "n1"}, 3 * GIB), ({"node": "n2"}, 1 * GIB)], at=at),
        queries.capacity.promql: vector([({"node": "n1"}, 4 * GIB), ({"node": "n2"}, 4 * GIB)], at=at),
        queries.pod.promql: vector([({"namespace": "shop", "pod": "web-0", "node": "n1"}, 2 * GIB)], at=at),
    }


def answered(answers: dict[str, Any], at: float, **fields: Any) -> Usage:
    """Beside the usual answers about CPU."""
    with fake_prometheus({**usual({"n1": 0.5, "n2": 0.5}, at=at), **answers}) as fake:
        return read(fake.url, two_nodes(), **fields, **OWN)


def test_memory_is_read_by_default_in_bytes() -> None:
    at = time.time()
    usage = answered(memory_answers(at), at)
    memory = usage.resources[MEMORY]
    assert memory.node.tolist() == [3 * GIB, 1 * GIB]
    assert memory.capacity.tolist() == [4 * GIB, 4 * GIB]
    assert memory.pod.tolist() == [2 * GIB]
    assert usage.notes == ()


def test_a_source_without_memory_is_noted_and_no_error() -> None:
    usage = answered({}, time.time())
    assert usage.resources == {}
    assert usage.warnings == ()
    assert [note.split(",")[0] for note in usage.notes] == ["memory is not known"]


def test_recording_rules_replace_the_default_queries_of_memory() -> None:
    at = time.time()
    rules = {"name": "memory", "node": "mem:used", "capacity": "mem:all", "pod": "mem:pod"}
    answers = {
        "mem:used": vector([({"node": "n1"}, 10)], at=at),
        "mem:all": vector([({"node": "n1"}, 20), ({"node": "n2"}, 20)], at=at),
        "mem:pod": vector([({"namespace": "shop", "pod": "web-0"}, 5)], at=at),
    }
    memory = answered(answers, at, resources=[rules]).resources[MEMORY]
    np.testing.assert_array_equal(memory.node, [10.0, np.nan])
    assert memory.pod.tolist() == [5.0]


def test_a_named_resource_without_capacity_is_a_share() -> None:
    at = time.time()
    answers = {
        "disk:node": vector([({"node": "n1"}, 0.9), ({"node": "n2"}, "NaN")], at=at),
        "disk:pod": vector([({"namespace": "shop", "pod": "web-0"}, 0.4)], at=at),
    }
    disk = answered(answers, at, resources=[DISK]).resources["disk-busy"]
    np.testing.assert_array_equal(disk.node, [0.9, np.nan])
    assert disk.capacity.tolist() == [1.0, 1.0]
    assert disk.pod.tolist() == [0.4]


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "resources[0].node: no series"), ([90, 80], "expected a share between 0 and 1, not percent")],
)
def test_a_named_resource_with_a_wrong_query_is_an_error(values: list[float], message: str) -> None:
    at = time.time()
    series = [({"node": f"n{index + 1}"}, value) for index, value in enumerate(values)]
    with pytest.raises(ConfigError) as error:
        answered({"disk:node": vector(series, at=at)}, at, resources=[DISK])
    assert message in str(error.value)


NETWORK = {"name": "network", "node": "net:node", "capacity": "net:all", "pod": "net:pod"}


@pytest.mark.parametrize(
    ("capacity", "pods", "message"),
    [
        (1_000.0, [], "resources[0].pod: no series of a pod of this cluster; query: net:pod"),
        (1.0, [50.0], "resources[0].capacity: n1 uses 100 times its capacity: expected the unit of `node`"),
        (1_000.0, [51_200.0], "resources[0].pod: its pods use 256 times what the nodes do: expected the same unit"),
    ],
    ids=["no pods", "capacity", "pods"],
)
def test_queries_of_a_resource_in_several_units_are_an_error(capacity: float, pods: list[float], message: str) -> None:
    at = time.time()
    answers = {
        "net:node": vector([({"node": "n1"}, 100.0), ({"node": "n2"}, 100.0)], at=at),
        "net:all": vector([({"node": "n1"}, capacity), ({"node": "n2"}, capacity)], at=at),
        "net:pod": vector([({"namespace": "shop", "pod": "web-0", "node": "n1"}, each) for each in pods], at=at),
    }
    with pytest.raises(ConfigError) as error:
        answered(answers, at, resources=[NETWORK])
    assert message in str(error.value)


def test_a_resource_that_nothing_uses_has_no_pods() -> None:
    at = time.time()
    idle = vector([({"node": "n1"}, 0.0), ({"node": "n2"}, 0.0)], at=at)
    usage = answered({"disk:node": idle, "disk:pod": vector([], at=at)}, at, resources=[DISK])
    assert "disk-busy" in usage.resources


@pytest.mark.parametrize("resources", [[DISK, DISK], [{**DISK, "name": "cpu"}]])
def test_names_of_resources_are_distinct_and_not_cpu(resources: list[dict[str, str]]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Prometheus.model_validate({"url": "http://127.0.0.1", "resources": resources})


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (422, {"status": "error", "errorType": "execution", "error": "too many samples"}),
        (503, {"status": "error", "errorType": "timeout", "error": "query timed out"}),
        (200, None),
    ],
    ids=["too much", "slow", "partial"],
)
def test_memory_that_can_not_be_read_stops_no_policy_without_thresholds_of_it(
    status: int, content: dict[str, Any] | None
) -> None:
    at = time.time()
    plain = by_query({**usual({"n1": 0.5, "n2": 0.5}, at=at), **memory_answers(at)})
    failed = content or {**vector([], at=at), "warnings": ["a store is unavailable"]}

    def answer(asked: Any) -> Any:
        return (status, failed) if "memory" in asked.params.get("query", "") else plain(asked)

    with fake_prometheus(answer) as fake:
        usage = read(fake.url, two_nodes(), **OWN)
    assert usage.warnings == ()
    assert "memory" not in usage.resources
    assert any("memory is not known" in note for note in usage.notes)
    assert np.isfinite(usage.node_cpu_millicores).all()


def test_doctor_fails_where_memory_has_thresholds_and_no_series() -> None:
    with fake_prometheus(usual({"n1": 0.5, "n2": 0.5})) as fake:
        for stabilized, needed in (((), False), ((MEMORY,), True)):
            with closing(reader(fake.url, stabilized=stabilized, **OWN)) as opened:
                found = [each for each in opened.probe().metrics if "memory" in each.name]
            assert [(each.series, each.needed) for each in found] == [(0, needed)] * 3
            assert ("memory has thresholds" in found[0].fix) is needed


def test_a_pod_relieves_its_node_of_its_anonymous_memory() -> None:
    at = time.time()
    answers = {**usual({"n1": 0.5, "n2": 0.5}, at=at), **memory_answers(at)}
    queries = default_memory_queries(Prometheus.model_validate({"url": "http://127.0.0.1", **OWN}))
    assert queries.relief is not None
    assert "container_memory_rss" in queries.relief.promql
    with fake_prometheus(answers) as fake:
        assert read(fake.url, two_nodes(), **OWN).resources[MEMORY].relieved.tolist() == [2 * GIB]
    series = [({"namespace": "shop", "pod": "web-0", "node": "n1"}, 0.5 * GIB)]
    with fake_prometheus({**answers, queries.relief.promql: vector(series, at=at)}) as fake:
        memory = read(fake.url, two_nodes(), **OWN).resources[MEMORY]
    assert memory.pod.tolist() == [2 * GIB]
    assert memory.relieved.tolist() == [0.5 * GIB]


def test_what_nodes_read_back_from_swap_is_known_where_memory_has_thresholds() -> None:
    at = time.time()
    plain = by_query({**usual({"n1": 0.5, "n2": 0.5}, at=at), **memory_answers(at)})

    def answer(asked: Any) -> Any:
        swaps = "node_vmstat_pswpin" in asked.params.get("query", "")
        return (200, vector([({"node": "n1"}, 700.0)], at=at)) if swaps else plain(asked)

    with fake_prometheus(answer) as fake:
        assert read(fake.url, two_nodes(), **OWN).swap_in_pages is None
        with closing(reader(fake.url, stabilized=[MEMORY], **OWN)) as opened:
            swap = opened.read(two_nodes()).swap_in_pages
    np.testing.assert_array_equal(swap, [700.0, np.nan])
