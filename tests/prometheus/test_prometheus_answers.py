"""What the reader makes of an answer's figures: values, ages, coverage, clocks."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError
from rebalancer.model.measured.usage import Usage
from rebalancer.model.reason import Reason
from tests.prometheus.builders import OWN, a_cluster, fake_prometheus, read, usual, vector

NODES: dict[str, list[str]] = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}


def answered(answers: dict[str, Any], *, pods: dict[str, str] | None = None, **fields: Any) -> Usage:
    with fake_prometheus(answers) as fake:
        return read(fake.url, a_cluster(NODES, pods or {}), **{**OWN, **fields})


def read_usual(values: dict[str, object], **fields: Any) -> Usage:
    return answered(usual(values), **fields)


def test_a_share_becomes_millicores_of_the_nodes_capacity() -> None:
    usage = read_usual({"a": 0.25, "b": 0.5})
    assert usage.node_cpu_millicores.tolist() == [1000.0, 2000.0]
    assert usage.coverage == 1.0
    assert usage.source == "Prometheus"
    assert usage.problems == {}
    # a little above one it is taken as it is
    assert read_usual({"a": 1.0001, "b": 0.5}).node_cpu_millicores[0] == pytest.approx(4000.4)
    cores = {**OWN["nodeCPU"], "unit": "cores"}
    assert read_usual({"a": 1.5, "b": 2}, nodeCPU=cores).node_cpu_millicores.tolist() == [1500.0, 2000.0]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.2"])
def test_one_node_without_a_usable_number_is_skipped_and_the_others_are_read(value: str) -> None:
    usage = read_usual({"a": value, "b": 0.5})
    assert np.isnan(usage.node_cpu_millicores[0])
    assert usage.node_cpu_millicores[1] == 2000.0
    assert usage.problems[0].code is Reason.NOT_FINITE
    assert usage.coverage == 0.5


def test_a_node_with_many_times_its_capacity_is_skipped_and_the_others_are_read() -> None:
    nodes = {**NODES, "c": ["10.0.0.3"]}
    with fake_prometheus(usual({"a": 9, "b": 0.5, "c": 0.25})) as fake:
        usage = read(fake.url, a_cluster(nodes, {}), **OWN)
    assert np.isnan(usage.node_cpu_millicores[0])
    assert usage.node_cpu_millicores[1:].tolist() == [2000.0, 1000.0]
    assert {index: problem.code for index, problem in usage.problems.items()} == {0: Reason.NOT_FINITE}


def test_a_node_without_series_is_skipped_with_a_reason() -> None:
    usage = read_usual({"a": 0.5})
    assert {index: problem.code for index, problem in usage.problems.items()} == {1: Reason.NO_SAMPLE}


def test_percent_instead_of_a_share_is_refused_by_naming_the_field() -> None:
    with pytest.raises(ConfigError, match=r"usage\.prometheus\.nodeCPU\.query: answers 70 times .* not percent"):
        read_usual({"a": 70, "b": 0.9})


def test_a_raw_sample_that_is_too_old_is_refused_with_its_age() -> None:
    now = time.time()
    times = vector([({"node": "a"}, now - 240), ({"node": "b"}, now - 5)], at=now)
    usage = answered(usual({"a": 0.5, "b": 0.5}) | {"node:time": times})
    assert usage.problems[0].code is Reason.STALE_SAMPLE
    assert "240 s old, at most 180 s" in usage.problems[0].message
    assert list(usage.problems) == [0]


@pytest.mark.parametrize("left", ["b", ""], ids=["one ended", "all gone: an outage and no idle cluster"])
def test_a_node_whose_raw_series_ended_is_stale_however_well_the_rule_answers(left: str) -> None:
    times = vector([({"node": name}, time.time() - 5) for name in left])
    usage = answered(usual({"a": 0.5, "b": 0.5}) | {"node:time": times})
    stale = [index for index, name in enumerate("ab") if name not in left]
    assert {index: problem.code for index, problem in usage.problems.items()} == dict.fromkeys(
        stale, Reason.STALE_SAMPLE
    )
    assert usage.coverage == len(left) / 2


def test_two_series_of_one_node_are_one_if_they_agree_and_ambiguous_and_named_if_not() -> None:
    def doubled(second: float) -> Usage:
        of_a = [({"node": "a", "replica": "x"}, 0.5), ({"node": "a", "replica": "y"}, second)]
        return answered(usual({"a": 0.5, "b": 0.5}) | {"node:cpu": vector([*of_a, ({"node": "b"}, 0.5)])})

    assert doubled(0.5).node_cpu_millicores[0] == 2000.0
    usage = doubled(0.9)
    assert usage.problems[0].code is Reason.AMBIGUOUS_NODE
    assert 'replica="x"' in usage.problems[0].message
    assert 'replica="y"' in usage.problems[0].message
    assert usage.node_cpu_millicores[1] == 2000.0


@pytest.mark.parametrize("shift", [-300.0, 300.0])
def test_clocks_that_disagree_by_minutes_stop_the_cycle(shift: float) -> None:
    with (
        fake_prometheus(usual({"a": 0.5}, at=time.time() + shift)) as fake,
        pytest.raises(UnsafeDataError, match=r"clock and ours disagree: Prometheus at http.* is 300 s"),
    ):
        read(fake.url, a_cluster(NODES), **OWN)


def test_every_later_query_is_asked_at_the_first_ones_moment() -> None:
    at = time.time() - 30.25
    with fake_prometheus(usual({"a": 0.5}, at=at)) as fake:
        assert read(fake.url, a_cluster(NODES), **OWN).at == at
    assert [asked.params.get("time") for asked in fake.asked] == [None, *[f"{at:.3f}"] * 3]


def test_warnings_are_kept_and_notes_on_the_query_are_not_taken_for_them() -> None:
    answers = usual({"a": 0.5, "b": 0.5})
    notes = ["store 10.1.1.1 timed out", 'PromQL info: metric might not be a counter: "x"']
    answers["node:cpu"] |= {"warnings": notes, "infos": ["PromQL info: y"]}
    assert answered(answers).warnings == ("usage.prometheus.nodeCPU.query: store 10.1.1.1 timed out",)


def test_no_series_at_all_says_which_exporter_is_missing_and_how_to_get_it() -> None:
    answers = {"count(container_cpu_usage_seconds_total)": vector([({}, 812)])}
    with fake_prometheus(answers) as fake, pytest.raises(ConfigError) as caught:
        read(fake.url, a_cluster(NODES))
    message = str(caught.value)
    assert message.startswith(f"usage.prometheus.nodeCPU.query: Prometheus at {fake.url} has no series")
    assert "node_cpu_seconds_total doesn't exist: install node_exporter" in message
    assert "container_cpu_usage_seconds_total has 812 series" in message
    assert "sum by (instance" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (lambda: usual({"elsewhere": 0.5}), r'none of 1 series .* names a node .*\{node="elsewhere"\}'),
        (
            lambda: {"node:cpu": {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}},
            r"nodeCPU\.query: expected series \(a vector\), got a scalar",
        ),
    ],
    ids=["series of another cluster", "one number"],
)
def test_a_query_that_is_not_about_nodes_of_this_cluster_is_refused(
    answers: Callable[[], dict[str, Any]], message: str
) -> None:
    """Samples are of the time of the test: those of its collection are stale in a long run."""
    with pytest.raises(ConfigError, match=message):
        answered(answers())


def test_a_native_histogram_is_not_taken_for_usage() -> None:
    answers = usual({"a": 0.5, "b": 0.5})
    answers["node:cpu"]["data"]["result"][0] = {"metric": {"node": "a"}, "histogram": [1, {"count": "1"}]}
    assert answered(answers).problems[0].code is Reason.NOT_FINITE


def test_no_usage_of_pods_at_all_makes_the_answer_partial() -> None:
    usage = answered(usual({"a": 0.5, "b": 0.5}) | {"pod:cpu": vector([])}, pods={"shop/web-0": "a"})
    assert usage.warnings == ("usage.prometheus.podCPU.query: no series: does Prometheus scrape cAdvisor?",)


def test_samples_over_the_debounce_are_asked_once_and_end_with_now() -> None:
    now = time.time()
    answers = usual({"a": 0.5, "b": 0.5}, at=now, age=4)
    fields = {"usage": {"stabilizationWindow": {"samples": 2, "duration": "60s"}}}

    def ranged(name: str, offset: float) -> dict[str, Any]:
        values = [[now - back, str(value)] for back, value in ((60, offset), (30, "NaN"), (15, offset + 0.2))]
        found = [{"metric": {"node": name}, "values": values}]
        return {"status": "success", "data": {"resultType": "matrix", "result": found}}

    def answer(asked: Any) -> tuple[int, Any]:
        if asked.path.endswith("query_range"):
            return 200, ranged("a", 0.1 if asked.params["query"] == "node:cpu" else now - 70)
        return 200, answers.get(asked.params["query"], vector([]))

    with fake_prometheus(answer) as fake:
        usage = read(fake.url, a_cluster(NODES), **OWN, **fields)
    np.testing.assert_allclose(usage.samples[:, 0], [400, np.nan, np.nan, 1200, 2000])
    np.testing.assert_allclose(usage.sample_times[[0, 4], 0], [now - 70, now - 4])
    assert usage.sample_seconds == 15.0
    assert np.isnan(usage.samples[:-1, 1]).all()
    (ask, _) = [asked.params for asked in fake.asked if asked.path.endswith("query_range")]
    assert (float(ask["end"]), float(ask["step"])) == (pytest.approx(now - 15, abs=1e-3), 15.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>login</html>",
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":7}}',
        b'{"status":"success"}',
        b"\xff\xfe",
        b"[]",
    ],
)
def test_an_answer_that_prometheus_would_not_give_is_a_broken_connection(body: bytes) -> None:
    with fake_prometheus(lambda _: (200, body)) as fake, pytest.raises(ConnectError, match=fake.url) as caught:
        read(fake.url, a_cluster(NODES), **OWN)
    assert "\n" not in str(caught.value)
