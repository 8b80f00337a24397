"""Days read from a Prometheus of our own words: what is asked, and how it goes on after errors."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.history import SLOTS
from rebalancer.prometheus.history.ranges import PrometheusHistory, QueryBudget
from tests.prometheus.builders import NoProgress, a_source, fake_prometheus, vector
from tests.prometheus.fakes import DAY, OWN, START, Clock, line
from tests.prometheus.scenarios import HEALTHY, NODES, NOW, a_past, a_snapshot, node, pod, read, reading


@contextmanager
def opened(answer: Any, clock: Clock, **fields: Any) -> Iterator[PrometheusHistory]:
    with fake_prometheus(answer) as fake:
        history = PrometheusHistory(a_source(fake.url, **OWN), clock=clock, progress=NoProgress(), **fields)
        with closing(history):
            yield history


def a_pull(history: PrometheusHistory) -> Any:
    """Of the whole day."""
    return history.pull(DAY, first=0, end=SLOTS, snapshot=a_snapshot())


def test_a_day_of_nodes_and_pods_is_read_in_millicores() -> None:
    block = read(a_past())
    assert set(block.pods) == {"shop/web-0", "shop/web-1"}
    assert set(block.nodes) == {"a", "b"}
    assert pod(block, "shop/web-0") == [250.0] * SLOTS
    assert node(block, "b") == [2500.0] * SLOTS
    assert block.notes == ()
    assert block.day == DAY


def test_each_figure_stands_in_the_slot_that_it_is_the_mean_of() -> None:
    lines = [*HEALTHY[:2], line("pod:cpu", {0: 0.1, 287: 0.2}, namespace="s", pod="p", node="a")]
    values = pod(read(a_past(lines)), "s/p")
    assert (values[0], values[287]) == (pytest.approx(100), pytest.approx(200))
    assert np.isnan(values[1:287]).all()


def test_no_query_is_larger_than_allowed_and_at_most_two_run_at_a_time() -> None:
    many = [
        line("pod:cpu", 0.01, namespace="shop", pod=f"p{index}", node=f"n{index % 50}", end=4) for index in range(5000)
    ]
    past = a_past([*HEALTHY[:2], *many])
    block = read(past, snapshot=a_snapshot({**NODES, **{f"n{index}": [] for index in range(50)}}))
    assert len(block.pods) == 5000
    assert past.most_at_once <= 2
    asked = [each for each in past.ranges if each["query"].startswith("pod:cpu")]
    assert len(asked) == 4  # 50 nodes of 100 series in three, and what no count has seen
    assert all(float(each["end"]) - float(each["start"]) <= 287 * 300 for each in asked)
    assert {each["step"] for each in asked} == {"300.000"}


def test_only_the_steps_that_are_asked_for_are_read_and_laid_over_what_was_known() -> None:
    past = a_past([*HEALTHY, line("pod:cpu", 1.0, namespace="shop", pod="new", node="a", first=100)])
    with reading(past) as history:
        begun = history.pull(DAY, first=0, end=100, snapshot=a_snapshot())
        assert begun.advance()
        before = begun.onto(None)
        assert before is not None
        assert np.isfinite(before.node_millicores).sum(axis=1).tolist() == [100, 100]
        past.ranges.clear()
        gone_on = history.pull(DAY, first=100, end=103, snapshot=a_snapshot())
        assert gone_on.advance()
        block = gone_on.onto(before)
    assert block is not None
    assert {each["start"] for each in past.ranges} == {f"{START + 101 * 300:.3f}"}
    assert {each["end"] for each in past.ranges} == {f"{START + 103 * 300:.3f}"}
    assert np.isfinite(pod(block, "shop/web-0")).sum() == 103
    assert np.flatnonzero(np.isfinite(pod(block, "shop/new"))).tolist() == [100, 101, 102]


def test_a_server_that_cannot_count_is_asked_for_the_series_themselves() -> None:
    past = a_past(counts=False)
    block = read(past)
    assert set(block.pods) == {"shop/web-0", "shop/web-1"}
    assert block.notes == ()


def test_an_expression_of_ones_own_is_asked_in_pieces_of_time() -> None:
    promql = "sum by (namespace, pod, node) (x)"
    many = [line("", 0.01, namespace="shop", pod=f"p{index}", node="a") for index in range(4000)]
    count = line("", dict.fromkeys(range(SLOTS), 4000))
    past = a_past(HEALTHY[:2], expressions={promql: many, f"count(\n{promql}\n)": [count]})
    block = read(past, podCPU={"query": promql})
    assert len(block.pods) == 4000
    assert np.isfinite(block.pod_millicores).all()
    spans = [float(each["end"]) - float(each["start"]) for each in past.ranges if each["query"] == promql]
    assert sorted(spans)[-2:] == [143 * 300.0, 143 * 300.0]


def test_what_is_too_much_for_prometheus_is_asked_in_smaller_pieces_from_then_on() -> None:
    past = a_past(most_points=300)
    with reading(past) as history:
        pull = a_pull(history)
        assert pull.advance()
        block = pull.onto(None)
        assert history.slots_at_most == 144
    assert block is not None
    assert np.isfinite(block.pod_millicores).all()
    assert np.isfinite(block.node_millicores).all()


@pytest.mark.parametrize("counts", [True, False])
def test_behind_a_frontend_that_limits_the_range_series_are_counted_in_halves_too(counts: bool) -> None:
    few = line("pod:cpu", 0.75, namespace="shop", pod="late", node="b", first=280)
    past = a_past([*HEALTHY, few], longest=3 * 3600.0, counts=counts)
    with fake_prometheus(past) as fake:
        history = PrometheusHistory(a_source(fake.url, **OWN), clock=past.clock, progress=NoProgress())
        with closing(history):
            pull = a_pull(history)
            assert pull.advance()
            block = pull.onto(None)
            refused = [each for each in fake.asked if _seconds(each.params) > past.longest]
    assert block is not None
    assert np.isfinite(block.node_millicores).all()
    assert {"shop/web-0", "shop/web-1", "shop/late"} == set(block.pods)
    assert np.isfinite(block.pod_millicores).sum() == 2 * SLOTS + 8
    assert len(refused) <= 8, "what was refused once isn't asked for each count again"


def _seconds(params: dict[str, str]) -> float:
    return float(params.get("end", 0)) - float(params.get("start", 0))


def test_what_stays_too_much_in_the_smallest_pieces_is_an_error_in_prometheus_words() -> None:
    with reading(a_past(most_points=1)) as history, pytest.raises(ConnectError, match=r"422 .*too many samples"):
        a_pull(history).advance()


def test_the_hours_queries_are_kept_to_and_the_day_goes_on_in_the_next() -> None:
    past = a_past()
    with reading(past, per_hour=4) as history:
        pull = a_pull(history)
        assert not pull.advance()
        assert len(past.ranges) == 2, "two for counting, two for samples"
        past.clock.at += 3500
        assert not pull.advance()
        assert len(past.ranges) == 2
        past.clock.at += 101
        assert pull.advance()
        block = pull.onto(None)
        asked = [each["query"] for each in past.ranges]
    assert block is not None
    assert set(block.pods) == {"shop/web-0", "shop/web-1"}
    assert len(asked) == len(set(asked)) == 4, "nothing is asked twice"


def test_a_budget_is_of_any_hour_and_outlives_a_clock_that_is_set_back() -> None:
    clock = Clock(10_000.0)
    budget = QueryBudget(2, clock)
    taken = []
    for at in (10_000, 10_001, 13_599, 13_600, 13_600.5, 13_601, 5_000, 5_001, 5_002):
        clock.at = float(at)
        taken.append(budget.take())
    assert taken == [True, True, False, True, False, True, True, True, False]


def test_pods_on_nodes_that_are_not_here_are_asked_when_all_others_have_been_answered() -> None:
    of_pods = [line("pod:cpu", share, namespace="s", pod="p", node=name) for share, name in ((0.9, "zz"), (0.2, "b"))]
    past = a_past([*HEALTHY[:2], *of_pods])

    def answer(asked: Any) -> Any:
        if asked.params["query"] == 'pod:cpu{node="b"}':
            time.sleep(0.3)  # the other answer would be there first
        return past(asked)

    with opened(answer, past.clock) as history:
        pull = a_pull(history)
        assert pull.advance()
    block = pull.onto(None)
    assert block is not None
    np.testing.assert_allclose(pod(block, "s/p"), 200, rtol=1e-6)


def test_nothing_is_asked_once_the_program_is_to_end() -> None:
    past = a_past()
    stop = False
    with opened(past, past.clock, stopping=lambda: stop) as history:
        pull = a_pull(history)
        stop = True
        assert not pull.advance()
        assert past.ranges == []
        stop = False
        assert pull.advance()


def test_what_was_read_before_an_error_is_not_asked_again() -> None:
    past = a_past()
    failing = True

    def answer(asked: Any) -> Any:
        if failing and asked.params["query"].startswith("pod:cpu{"):
            return 500, "no"
        return past(asked)

    with opened(answer, past.clock) as history:
        pull = a_pull(history)
        with pytest.raises(ConnectError, match=r"answered 500 to usage\.prometheus\.podCPU\.query"):
            pull.advance()
        failing = False
        assert pull.advance()
    block = pull.onto(None)
    assert block is not None
    assert len(block.pods) == 2
    assert len([each for each in past.ranges if each["query"].startswith("node:cpu")]) == 2


def test_a_day_that_prometheus_no_longer_has_is_absent() -> None:
    assert read(a_past([line("node:cpu", 1.0, node="a", first=SLOTS, end=2 * SLOTS)])) is None


def test_a_partial_answer_is_known_by_its_warnings() -> None:
    with reading(a_past(warnings=("a store is not there",))) as history:
        pull = a_pull(history)
        assert pull.advance()
        assert pull.warnings == ("a store is not there",)
        assert pull.onto(None) is not None


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_its_clock_is_held_against_ours(ahead: float, counts: bool) -> None:
    with reading(a_past(ahead=ahead, counts=counts)) as history:
        assert history.seconds_ahead() == pytest.approx(ahead, abs=5)


def test_an_empty_prometheus_has_no_clock_to_speak_of() -> None:
    with reading(a_past([])) as history:
        assert history.seconds_ahead() is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[START + 300, "x"]], "not a number"),
        ([[START + 300, "1", "2"]], "not pairs"),
        ("text", "not pairs|not a number"),
    ],
)
def test_an_answer_that_is_none_is_reported_as_broken(values: object, message: str) -> None:
    past = a_past()

    def answer(asked: Any) -> Any:
        status, content = past(asked)
        for each in content["data"]["result"]:
            if asked.params["query"].startswith("pod:cpu{") and asked.path.endswith("range"):
                each["values"] = values
        return status, content

    broken = rf"broken answer to usage\.prometheus\.podCPU\.query: ({message})"
    with opened(answer, past.clock) as history, pytest.raises(ConnectError, match=broken):
        a_pull(history).advance()


def test_another_kind_of_answer_is_the_querys_fault() -> None:
    with (
        opened(lambda _: (200, vector([])), Clock(NOW)) as history,
        pytest.raises(ConfigError, match=r"usage\.prometheus\.nodeCPU\.query: expected series"),
    ):
        a_pull(history).advance()


def test_the_identity_changes_with_what_is_asked_and_not_with_how() -> None:
    def identity(url: str = "http://p:9090", **fields: Any) -> str:
        return PrometheusHistory(a_source(url, **fields), clock=Clock(NOW), progress=NoProgress()).identity

    same = identity()
    assert identity(timeout="30s", history={"queriesPerHour": 5}) == same
    others = [identity("http://q:9090"), identity(podCPU={"query": "pod:cpu"}), identity(nodeCPU={"nodeBy": "Name"})]
    others += [identity(headers={"X-Scope-OrgID": "b"}), identity(usage={"rateWindow": "10m"})]
    assert len({same, *others}) == 6
