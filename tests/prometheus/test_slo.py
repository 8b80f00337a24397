"""The standard of a hot node: what any Prometheus may answer, and what the lab's own figures say."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.measured.slo import SloSamples
from rebalancer.policy.schema.policy import HotNodeSlo
from rebalancer.prometheus.history.slo import PrometheusSlo
from tests.prometheus.builders import Asked, Reply, a_cluster, a_source, fake_prometheus
from tests.prometheus.fakes import OWN, START, Clock, Line, Past, line

HOUR = 12
"""Slots."""
START_OF_LAB = 1_790_000_000.0


def some_nodes(names: Mapping[str, Sequence[str]] | None = None, *, cpu: float = 4000.0, joined: float = 0.0) -> Nodes:
    """`names` = {name: addresses}; a, b and c where absent."""
    found = a_cluster(names or {"a": ["10.0.0.1"], "b": ["10.0.0.2"], "c": []}, cpu=cpu).nodes
    return replace(found, created=np.full(len(found), joined))


def a_past(lines: Sequence[Line], **fields: Any) -> Past:
    return Past(lines=lines, clock=Clock(START + 86_400.0), **fields)


@contextmanager
def the_standard(
    past: Past | Callable[..., Any], *, stopping: Callable[[], bool] = lambda: False, source: Any = None, **fields: Any
) -> Iterator[PrometheusSlo]:
    """`fields` are those of effect.hotNodeSLO; `source` those of usage.prometheus."""
    with fake_prometheus(past) as fake:
        standard = HotNodeSlo.model_validate({"query": "share", **fields})
        with closing(PrometheusSlo(a_source(fake.url, **(source or OWN)), standard, stopping=stopping)) as reader:
            yield reader


def read(reader: PrometheusSlo, nodes: Nodes | None = None, *, slots: int = HOUR) -> SloSamples:
    """The first slots of the day."""
    end = START + slots * STEP_SECONDS
    return reader.read(nodes or some_nodes(), start=START + STEP_SECONDS, end=end, step=STEP_SECONDS)


def found_in(lines: Sequence[Line], nodes: Nodes | None = None, *, slots: int = HOUR, **fields: Any) -> SloSamples:
    with the_standard(a_past(lines), **fields) as reader:
        return read(reader, nodes, slots=slots)


def test_every_look_at_every_node_stands_at_its_time() -> None:
    found = found_in([line("share", 0.25, node="a"), line("share", {0: 0.5, 2: 0.75}, node="b")], slots=3)
    assert found.nodes == ("a", "b", "c")
    np.testing.assert_array_equal(found.times, START + STEP_SECONDS * np.array([1.0, 2.0, 3.0]))
    nan = np.nan
    np.testing.assert_array_equal(found.shares, [[0.25, 0.5, nan], [0.25, nan, nan], [0.25, 0.75, nan]])
    assert found.partial == ()


def test_an_instance_with_its_port_is_the_node_that_has_the_address() -> None:
    lines = [line("share", 0.5, instance="10.0.0.2:9100"), line("share", 0.9, instance="192.168.9.9:9100")]
    np.testing.assert_array_equal(found_in(lines, slots=1, label="instance").shares, [[np.nan, 0.5, np.nan]])


def test_a_share_is_read_exactly() -> None:
    # a single-precision 0.8 is above 0.8, and its node would be hot
    assert found_in([line("share", 0.8, node="a")], slots=1).shares[0, 0] == 0.8


def test_without_a_query_it_is_the_cpu_that_decisions_are_made_by() -> None:
    past = a_past([line("node:cpu", 3.0, node="a"), line("share", 0.1, node="a")])
    with the_standard(past, query=None) as reader:
        found = read(reader, slots=2)  # OWN answers cores
    np.testing.assert_array_equal(found.shares[:, 0], [0.75, 0.75])
    assert all(asked["query"].startswith("node:cpu") for asked in past.ranges)


def test_an_expression_is_asked_as_it_is() -> None:
    promql = "max by (node) (share) # of all jobs"
    past = a_past([], expressions={promql: [line("", 0.5, node="a")]}, counts=False)
    with the_standard(past, query=promql) as reader:
        found = read(reader)
    assert (found.shares[:, 0] == 0.5).all()
    assert {asked["query"] for asked in past.ranges} == {promql}


def test_what_is_too_much_is_asked_in_halves_and_is_the_same() -> None:
    names = [f"n-{index}" for index in range(8)]
    lines = [line("share", {slot: slot / 100 for slot in range(24)}, node=name) for name in names]
    nodes = some_nodes({name: [] for name in names})
    whole, small = a_past(lines), a_past(lines, most_points=60)
    with the_standard(whole) as reader:
        wanted = read(reader, nodes, slots=24)
    with the_standard(small) as reader:
        found = read(reader, nodes, slots=24)
    np.testing.assert_array_equal(found.shares, wanted.shares)
    assert np.isfinite(found.shares).all()
    assert len(small.ranges) > len(whole.ranges)


def test_behind_a_frontend_that_limits_the_range_nodes_are_counted_in_halves_too() -> None:
    past = a_past([line("share", 0.5, node="a"), line("share", 0.25, node="b", first=280)], longest=3 * 3600.0)
    with the_standard(past) as reader:
        found = read(reader, slots=288)
    assert (found.shares[:, 0] == 0.5).all()
    assert np.isfinite(found.shares[:, 1]).sum() == 8


def test_what_stays_too_much_is_an_error_and_not_asked_for_ever() -> None:
    past = a_past([line("share", 0.5, node="a")], most_points=1)
    with the_standard(past) as reader, pytest.raises(ConnectError, match=r"422 to effect\.hotNodeSLO\.query"):
        read(reader)
    assert len(past.ranges) < 20


def test_many_series_are_asked_in_pieces_of_nodes_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.prometheus.promql.chunks.SERIES_AT_MOST", 1)
    names = [f"n-{index:02d}" for index in range(20)]
    past = a_past([line("share", 0.5, node=name) for name in names])
    both, first_two = Barrier(2, timeout=60), iter(range(2))
    together: list[int] = []

    def answer(asked: Asked) -> Reply:
        if 'node="' in asked.params["query"] and next(first_two, None) is not None:
            both.wait()  # fails unless another one comes while this one is answered
            together.append(1)
        return past(asked)

    with the_standard(answer) as reader:
        found = read(reader, some_nodes({name: [] for name in names}), slots=HOUR * 24)
    assert (found.shares == 0.5).all()
    assert len(past.ranges) == len(names) + 1  # and once for those that no count has seen
    assert (len(together), past.most_at_once <= 2) == (2, True)


def test_two_series_of_one_node_that_contradict_each_other_tell_nothing_as_an_address_of_two_nodes() -> None:
    lines = [
        line("share", {0: 0.5, 1: 0.5, 2: 0.5}, node="a", job="x"),
        line("share", {1: 0.5, 2: 0.9}, node="a", job="y"),
    ]
    np.testing.assert_array_equal(found_in(lines, slots=3).shares[:, 0], [0.5, 0.5, np.nan])
    nodes = some_nodes({"a": ["10.0.0.1"], "b": ["10.0.0.1"]})
    assert np.isnan(found_in([line("share", 0.5, node="10.0.0.1:9100")], nodes).shares).all()


def test_what_was_measured_before_a_node_joined_is_not_its_own() -> None:
    found = found_in([line("share", 0.5, node="a")], some_nodes(joined=START + 2 * STEP_SECONDS), slots=3)
    np.testing.assert_array_equal(found.shares[:, 0], [np.nan, 0.5, 0.5])


@pytest.mark.parametrize("odd", [-0.1, 1.6, "NaN", "+Inf"])
def test_what_can_not_be_a_share_is_not_known(odd: object) -> None:
    lines = [line("share", {0: odd, 1: 0.5}, node="a"), line("share", 0.5, node="b"), line("share", 0.5, node="c")]
    found = found_in(lines, slots=2)
    np.testing.assert_array_equal(found.shares[:, 0], [np.nan, 0.5])
    assert (found.shares[:, 1:] == 0.5).all()


@pytest.mark.parametrize(
    ("past", "fields", "message"),
    [
        (a_past([line("share", 55.0, node="a")]), {}, r"query: answers 55 times .* of a: expected a share"),
        (a_past([], counts=False), {"query": "sum("}, r"query: Prometheus at .* refuses it"),
        (a_past([]), {"label": "a-b"}, r"label: expected a label name such as node, got 'a-b'"),
    ],
    ids=["percent", "a query that is refused", "no label"],
)
def test_a_mistake_is_an_error_with_its_field(past: Past, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"effect\.hotNodeSLO\.{message}"), the_standard(past, **fields) as reader:
        read(reader)


def test_a_partial_answer_is_named() -> None:
    past = a_past([line("share", 0.5, node="a")], warnings=("a store is not there",))
    with the_standard(past) as reader:
        found = read(reader)
    assert found.partial == ("effect.hotNodeSLO.query: a store is not there",)
    assert (found.shares[:, 0] == 0.5).all()


def test_series_of_another_cluster_are_named_and_are_no_error_and_without_any_nothing_is_known() -> None:
    found = found_in([line("share", 0.5, node="z")])
    (partial,) = found.partial
    assert "none of 1 series names a node of this cluster by its label node" in partial
    assert np.isnan(found.shares).all()
    empty = found_in([])
    assert np.isnan(empty.shares).all()
    assert empty.shares.shape == (HOUR, 3)


def test_nothing_is_asked_once_we_stop() -> None:
    past = a_past([line("share", 0.5, node="a")])
    with the_standard(past, stopping=lambda: True) as reader, pytest.raises(ConnectError, match="is stopping"):
        read(reader)
    assert past.ranges == []


@pytest.mark.parametrize("query", [None, "instance:node_cpu_utilisation:rate5m"])
def test_the_labs_figures_are_the_labs_truth(query: str | None) -> None:
    nodes = [node("hot", cpu=8, overhead_cores=0.5), node("cool", cpu=16)]
    services = [workload("web", place={"hot": 3, "cool": 1}, cpu=2.0)]
    with Lab.start(scenario(nodes=nodes, workloads=services), stepped=True, start_time=START_OF_LAB) as lab:
        lab.clock.sleep(1800)
        rule, freshness = "instance:node_cpu_utilisation:rate5m", "timestamp(node_cpu_seconds_total)"
        own = {"nodeCPU": {"query": rule, "freshness": freshness}}
        standard = HotNodeSlo.model_validate({"query": query, "label": "instance"})
        with lab.cluster.lock:
            addresses = {
                each["metadata"]["name"]: [one["address"] for one in each["status"]["addresses"]]
                for each in lab.cluster.nodes()
            }
        with closing(PrometheusSlo(a_source(lab.prometheus_url, **own), standard)) as reader:
            start = START_OF_LAB + 600.0
            found = reader.read(some_nodes(addresses), start=start, end=start + 1200.0, step=60.0)
        truth = lab.truth.timeline(start=start, end=start + 1200.0)
    wanted = [[shares[name] for name in found.nodes] for _, shares in truth]
    np.testing.assert_allclose(found.shares, wanted, rtol=1e-6)
    assert found.shares[0, found.nodes.index("hot")] == pytest.approx(6.5 / 8)
