"""A day's question in pieces: matchers, counts, order."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from rebalancer.model.measured.history import SLOTS
from rebalancer.prometheus.promql.chunks import (
    Matchers,
    QueryChunk,
    any_of,
    chunked_queries,
    none_of,
    packed,
    query_chunks,
)
from rebalancer.prometheus.promql.queries import queries
from tests.prometheus.builders import a_source


def asked(
    counts: Mapping[str, Mapping[str, int]],
    *,
    first: int = 0,
    end: int = SLOTS,
    known: tuple[str, ...] = (),
    slots_at_most: int = SLOTS,
    **fields: Any,
) -> list[QueryChunk]:
    """Pieces of the pods' question; `counts` = {label: {value: series}}."""
    source = a_source("http://127.0.0.1:1", **fields)
    assert source.prometheus is not None
    _, pods = chunked_queries(queries(source), source.prometheus, window_seconds=300)

    def count(label: str, promql: str, matchers: Matchers) -> Mapping[str, int]:
        assert promql == pods.count(label, matchers)
        return counts[label]

    return list(
        query_chunks(
            pods, first=first, end=end, count=count, known=lambda value: value in known, slots_at_most=slots_at_most
        )
    )


def matchers_of(piece: QueryChunk) -> str:
    found = re.search(r'container!="POD",?([^}]*)\}', piece.promql)
    assert found is not None
    return found[1]


def test_nodes_go_together_as_long_as_their_series_are_few() -> None:
    found = asked({"node": {"a": 900, "b": 1100, "c": 1, "d": 1999}}, known=("a", "b", "c", "d"))
    assert [matchers_of(each) for each in found] == ['node=~"a|b"', 'node=~"c|d"', 'node!~"a|b|c|d"']


def test_no_value_is_lost_that_no_count_has_seen() -> None:
    assert [matchers_of(each) for each in asked({"node": {}})] == [""]
    assert [each.late for each in asked({"node": {}})] == [True]


def test_nodes_that_are_not_this_clusters_come_after_those_that_are() -> None:
    found = asked({"node": {"a": 1, "gone": 1, "z": 1}}, known=("a", "z"))
    assert [(matchers_of(each), each.late) for each in found] == [
        ('node=~"a|z"', False),
        ('node="gone"', True),
        ('node!~"a|gone|z"', True),
    ]


def test_series_without_a_node_are_divided_by_namespace() -> None:
    found = asked({"node": {"": 3000}, "namespace": {"shop": 1500, "web": 1500}}, known=("",))
    assert [matchers_of(each) for each in found] == [
        'node="",namespace="shop"',
        'node="",namespace="web"',
        'node="",namespace!~"shop|web"',
        'node!~""',
    ]


def test_what_no_label_divides_is_divided_by_time() -> None:
    found = asked({"node": {"": 6000}, "namespace": {"shop": 6000}}, known=("",))
    shop = [each for each in found if 'namespace="shop"' in each.promql]
    assert [(each.first, each.end) for each in shop] == [(0, 96), (96, 192), (192, 288)]


def test_fewer_points_leave_room_for_more_series() -> None:
    counts = {"node": {f"n{index:02}": 1000 for index in range(40)}}
    every = tuple(counts["node"])
    assert len(asked(counts, known=every)) == 21
    assert len(asked(counts, known=every, first=100, end=112)) == 3
    assert len(asked(counts, known=every, first=100, end=101)) == 3, "however few points, not all series at once"


def test_what_has_proved_too_much_is_asked_in_smaller_pieces() -> None:
    found = asked({"node": {"a": 10}}, known=("a",), slots_at_most=100)
    assert [(each.first, each.end) for each in found[:3]] == [(0, 100), (100, 200), (200, 288)]


@pytest.mark.parametrize(
    ("promql", "with_matchers"),
    [
        ("pod:cpu", 'pod:cpu{node="a"}'),
        ("pod:cpu{}", 'pod:cpu{node="a"}'),
        (' pod:cpu { env = "x", } ', 'pod:cpu{env = "x",node="a"}'),
        ('pod:cpu{a="}",b=~"\\"{"}', 'pod:cpu{a="}",b=~"\\"{",node="a"}'),
    ],
)
def test_a_recording_rule_is_divided_by_its_own_labels(promql: str, with_matchers: str) -> None:
    found = asked({"node": {"a": 5}}, known=("a",), podCPU={"query": promql})
    assert found[0].promql == with_matchers


@pytest.mark.parametrize(
    "promql", ["sum by (pod) (x)", 'a{x="1"} / b{y="2"}', "rate(x[5m])", "x offset 5m", "x # a comment"]
)
def test_any_other_query_is_left_as_it_is_and_divided_by_time(promql: str) -> None:
    found = asked({"": {"": 4000}}, podCPU={"query": promql})
    assert [(each.promql, each.first, each.end) for each in found] == [(promql, 0, 144), (promql, 144, 288)]


def test_a_count_says_how_many_series_the_answer_has_and_not_how_many_lie_behind_it() -> None:
    source = a_source("http://127.0.0.1:1")
    assert source.prometheus is not None
    nodes, pods = chunked_queries(queries(source), source.prometheus, window_seconds=300)
    assert pods.count("node", ()).startswith("count by (node) (count by (namespace, pod, node) (container_cpu")
    assert "[5m]" in nodes.promql(())
    assert "rate" not in nodes.count("instance", ())


def test_the_rate_window_is_at_least_a_step_and_else_the_policys() -> None:
    source = a_source("http://127.0.0.1:1", usage={"rateWindow": "10m"})
    assert source.prometheus is not None
    nodes, _ = chunked_queries(queries(source), source.prometheus, window_seconds=600)
    assert "[10m]" in nodes.promql(())


@pytest.mark.parametrize(
    ("values", "matcher"),
    [
        (["a.b"], 'n="a.b"'),
        (["a.b", "c+d"], r'n=~"a\\.b|c\\+d"'),
        (['q"', "b\\"], r'n=~"q\"|b\\\\"'),
        (["", "a"], 'n=~"|a"'),
        (["(|)", "[x]"], r'n=~"\\(\\|\\)|\\[x\\]"'),
    ],
)
def test_values_are_escaped_for_the_regex_and_then_for_the_string(values: list[str], matcher: str) -> None:
    assert any_of("n", values) == matcher
    assert none_of("n", ["a.b"]) == r'n!~"a\\.b"'


def test_a_value_that_is_too_large_stands_alone() -> None:
    assert packed({"a": 1, "b": 500, "c": 2, "d": 3}, 10) == [["a"], ["b"], ["c", "d"]]
    assert packed({}, 10) == []
