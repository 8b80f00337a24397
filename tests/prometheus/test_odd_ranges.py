"""What is made of odd answers: gaps, doubles, strangers, and addresses that change hands."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.measured.history import SLOTS
from tests.prometheus.fakes import OWN, START, Line, line
from tests.prometheus.scenarios import HEALTHY, a_past, a_snapshot, node, pod, read


def of_node(value: object, name: str = "a", **fields: Any) -> Line:
    return line("node:cpu", value, node=name, **fields)


def of_pod(value: object, name: str = "a", **fields: Any) -> Line:
    return line("pod:cpu", value, namespace="s", pod="p", node=name, **fields)


NO_PODS = "no series of pods"
NAN = np.nan
ODD: dict[str, tuple[list[Line], dict[str, dict[int, float]], tuple[str, ...]]] = {
    "a gap stays unknown": (
        [of_node({slot: 1.0 for slot in range(SLOTS) if not 120 <= slot < 150})],
        {"a": {119: 1000, 120: NAN, 149: NAN, 150: 1000}},
        ("no samples from 2026-09-04 10:00 UTC to 2026-09-04 12:30 UTC", NO_PODS),
    ),
    "one scrape that failed is no gap worth a word": (
        [of_node({slot: 1.0 for slot in range(SLOTS) if slot != 120})], {"a": {120: NAN}}, (NO_PODS,),
    ),
    "two days of retention begin in the middle of a day": (
        [of_node(1.0, first=200)],
        {"a": {199: NAN, 200: 1000}},
        ("no samples from 2026-09-04 00:00 UTC to 2026-09-04 16:40 UTC", NO_PODS),
    ),
    "what is no CPU is left out": (
        [of_node({0: "NaN", 1: "+Inf", 2: "-Inf", 3: -0.5, 4: 1.0, 5: 6.0, 6: 6.1, 7: 1e300})],
        {"a": {0: NAN, 1: NAN, 2: NAN, 3: NAN, 4: 1000, 5: 6000, 6: NAN, 7: NAN}},
        (
            "no samples from 2026-09-04 00:00 UTC to 2026-09-04 00:20 UTC, "
            "2026-09-04 00:30 UTC to 2026-09-05 00:00 UTC",
            "5 figures are left out: negative, not finite, or more than a node has",
            NO_PODS,
        ),
    ),
    "two series of one node that disagree can't be told apart": (
        [of_node(1.0, job="x"), of_node(2.0, job="y", end=100)],
        {"a": {0: NAN, 99: NAN, 100: 1000}},
        ("no samples from 2026-09-04 00:00 UTC to 2026-09-04 08:20 UTC", "the series of a are ambiguous", NO_PODS),
    ),
    "two series of one node that agree are one": (
        [of_node(1.0, job="x"), of_node(1.0, job="y")], {"a": {0: 1000}}, (NO_PODS,),
    ),
    "an exporter that was replaced hands over": (
        [of_node(1.0, pod="x", end=101), of_node(2.0, pod="y", first=100)],
        {"a": {99: 1000, 100: NAN, 101: 2000}},
        (NO_PODS,),
    ),
    "no node at all": ([of_pod(0.1)], {}, ("no series of nodes",)),
    "another cluster's nodes are left out and, when all are, named": (
        [of_node(1.0, "c"), of_pod(0.1)], {}, ('no series names a node of this cluster, for example {node="c"}',),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "values", "notes"), ODD.values(), ids=ODD.keys())
def test_odd_answers_about_nodes(
    lines: list[Line], values: dict[str, dict[int, float]], notes: tuple[str, ...]
) -> None:
    block = read(a_past(lines))
    for name, slots in values.items():
        np.testing.assert_allclose([node(block, name)[slot] for slot in slots], list(slots.values()), err_msg=name)
    assert len(block.notes) == len(notes), block.notes
    for note, wanted in zip(block.notes, notes, strict=True):
        assert note.startswith(wanted)


ODD_PODS: dict[str, tuple[list[Line], dict[int, float]]] = {
    "containers are parts and add up": (
        [of_pod(0.1, container="app"), of_pod(0.2, container="proxy", end=10)], {0: 300, 10: 100},
    ),
    "of two views of one container the larger counts": (
        [of_pod(0.1, container="app", job="x"), of_pod(0.2, container="app", job="y")], {0: 200},
    ),
    "a restarted container's new series goes on from the old one": (
        [of_pod(0.1, id="1", end=11), of_pod(0.3, id="2", first=10)], {9: 100, 10: 300, 11: 300},
    ),
    "a pod that moved is one pod": ([of_pod(0.1, end=100), of_pod(0.2, "b", first=100)], {99: 100, 100: 200}),
    "where it was on a node that is gone it is known from there": (
        [of_pod(0.9, "0-gone", end=102), of_pod(0.2, "b", first=100)], {99: 900, 100: 200, 101: 200},
    ),
    "another cluster's pod of the same name does not hide ours": (
        [of_pod(0.9, "zz"), of_pod(0.2, "b")], {0: 200, 287: 200},
    ),
    "series may name no node": ([line("pod:cpu", 0.2, namespace="s", pod="p")], {0: 200}),
    "what is no CPU is left out": (
        [of_pod({0: "NaN", 1: "+Inf", 2: -1, 3: 0, 4: 6.5, 5: 0.5})],
        {0: NAN, 1: NAN, 2: NAN, 3: 0, 4: NAN, 5: 500},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "values"), ODD_PODS.values(), ids=ODD_PODS.keys())
def test_odd_answers_about_pods(lines: list[Line], values: dict[int, float]) -> None:
    block = read(a_past([*HEALTHY[:2], *lines]))
    assert block.pods == ("s/p",)
    np.testing.assert_allclose([pod(block, "s/p")[slot] for slot in values], list(values.values()), rtol=1e-6)


def test_a_series_about_no_pod_is_left_out() -> None:
    block = read(a_past([*HEALTHY[:2], line("pod:cpu", 1.0, node="a"), line("pod:cpu", 1.0, namespace="s", node="a")]))
    assert block.pods == ()
    assert block.notes == ("no series of pods",)


def test_an_address_that_belonged_to_another_machine_says_nothing_of_this_one() -> None:
    snapshot = a_snapshot()
    born = np.array([START + 100.5 * 300, START + 100.5 * 300])
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, created=born))
    own = {**OWN["nodeCPU"], "label": "instance"}
    lines = [line("node:cpu", 1.0, instance="10.0.0.1:9100"), line("node:cpu", 2.0, instance="b:9100")]
    block = read(a_past(lines), snapshot=snapshot, nodeCPU=own)
    assert np.isnan(node(block, "a")[:101]).all()
    assert node(block, "a")[101] == 1000
    assert node(block, "b")[0] == 2000, "its name is its name, however often the node was registered"


def test_an_address_of_two_nodes_is_neithers() -> None:
    own = {**OWN["nodeCPU"], "label": "instance"}
    snapshot = a_snapshot({"a": ["10.0.0.1"], "b": ["10.0.0.1"], "c": ["10.0.0.3"]})
    lines = [line("node:cpu", 1.0, instance="10.0.0.1:9100"), line("node:cpu", 2.0, instance="10.0.0.3:9100")]
    block = read(a_past([*lines, *HEALTHY[2:]]), snapshot=snapshot, nodeCPU=own)
    assert np.isnan(node(block, "a")).all()
    assert node(block, "c")[0] == 2000
    assert block.notes[0].startswith("the series of a are ambiguous")
    assert "1 more nodes" in block.notes[0]


def test_a_share_is_scaled_by_the_nodes_capacity() -> None:
    own = {**OWN["nodeCPU"], "unit": "share"}
    assert node(read(a_past([line("node:cpu", 0.5, node="a")]), nodeCPU=own), "a")[0] == 2000
