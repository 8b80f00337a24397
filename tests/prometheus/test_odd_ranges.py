"""What is made of odd answers: gaps, doubles, strangers, and addresses that change hands."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.model.measured.history import SLOTS
from tests.prometheus.fakes import OWN, START, Line, line
from tests.prometheus.scenarios import HEALTHY, a_past, a_snapshot, node, pod, read

ODD: list[tuple[str, list[Line], dict[str, dict[int, float]], tuple[str, ...]]] = [
    (
        "a gap stays unknown",
        [line("node:cpu", {slot: 1.0 for slot in range(SLOTS) if not 120 <= slot < 150}, node="a")],
        {"a": {119: 1000, 120: np.nan, 149: np.nan, 150: 1000}},
        ("no samples from 2026-09-04 10:00 UTC to 2026-09-04 12:30 UTC", "no series of pods"),
    ),
    (
        "one scrape that failed is no gap worth a word",
        [line("node:cpu", {slot: 1.0 for slot in range(SLOTS) if slot != 120}, node="a")],
        {"a": {120: np.nan}},
        ("no series of pods",),
    ),
    (
        "two days of retention begin in the middle of a day",
        [line("node:cpu", 1.0, node="a", first=200)],
        {"a": {199: np.nan, 200: 1000}},
        ("no samples from 2026-09-04 00:00 UTC to 2026-09-04 16:40 UTC", "no series of pods"),
    ),
    (
        "what is no CPU is left out",
        [line("node:cpu", {0: "NaN", 1: "+Inf", 2: "-Inf", 3: -0.5, 4: 1.0, 5: 6.0, 6: 6.1, 7: 1e300}, node="a")],
        {"a": {0: np.nan, 1: np.nan, 2: np.nan, 3: np.nan, 4: 1000, 5: 6000, 6: np.nan, 7: np.nan}},
        (
            "no samples from 2026-09-04 00:00 UTC to 2026-09-04 00:20 UTC, "
            "2026-09-04 00:30 UTC to 2026-09-05 00:00 UTC",
            "5 figures are left out: negative, not finite, or more than a node has",
            "no series of pods",
        ),
    ),
    (
        "two series of one node that disagree can't be told apart",
        [line("node:cpu", 1.0, node="a", job="x"), line("node:cpu", 2.0, node="a", job="y", end=100)],
        {"a": {0: np.nan, 99: np.nan, 100: 1000}},
        (
            "no samples from 2026-09-04 00:00 UTC to 2026-09-04 08:20 UTC",
            "the series of a are ambiguous",
            "no series of pods",
        ),
    ),
    (
        "two series of one node that agree are one",
        [line("node:cpu", 1.0, node="a", job="x"), line("node:cpu", 1.0, node="a", job="y")],
        {"a": {0: 1000}},
        ("no series of pods",),
    ),
    (
        "an exporter that was replaced hands over",
        [line("node:cpu", 1.0, node="a", pod="x", end=101), line("node:cpu", 2.0, node="a", pod="y", first=100)],
        {"a": {99: 1000, 100: np.nan, 101: 2000}},
        ("no series of pods",),
    ),
    (
        "another cluster's nodes are left out and, when all are, said",
        [line("node:cpu", 1.0, node="c"), line("pod:cpu", 0.1, namespace="s", pod="p", node="a")],
        {},
        ('no series names a node of this cluster, for example {node="c"}',),
    ),
]


@pytest.mark.parametrize(("lines", "values", "notes"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
def test_odd_answers_about_nodes(
    lines: list[Line], values: dict[str, dict[int, float]], notes: tuple[str, ...]
) -> None:
    block = read(a_past(lines))
    for name, slots in values.items():
        np.testing.assert_allclose([node(block, name)[slot] for slot in slots], list(slots.values()), err_msg=name)
    assert len(block.notes) == len(notes), block.notes
    for said, wanted in zip(block.notes, notes, strict=True):
        assert said.startswith(wanted)


ODD_PODS: list[tuple[str, list[Line], dict[int, float]]] = [
    (
        "containers are parts and add up",
        [
            line("pod:cpu", 0.1, namespace="s", pod="p", node="a", container="app"),
            line("pod:cpu", 0.2, namespace="s", pod="p", node="a", container="proxy", end=10),
        ],
        {0: 300, 10: 100},
    ),
    (
        "of two views of one container the larger counts",
        [
            line("pod:cpu", 0.1, namespace="s", pod="p", node="a", container="app", job="x"),
            line("pod:cpu", 0.2, namespace="s", pod="p", node="a", container="app", job="y"),
        ],
        {0: 200},
    ),
    (
        "a restarted container's new series goes on from the old one",
        [
            line("pod:cpu", 0.1, namespace="s", pod="p", node="a", id="1", end=11),
            line("pod:cpu", 0.3, namespace="s", pod="p", node="a", id="2", first=10),
        ],
        {9: 100, 10: 300, 11: 300},
    ),
    (
        "a pod that moved is one pod",
        [
            line("pod:cpu", 0.1, namespace="s", pod="p", node="a", end=100),
            line("pod:cpu", 0.2, namespace="s", pod="p", node="b", first=100),
        ],
        {99: 100, 100: 200},
    ),
    (
        "where it was on a node that is gone it is known from there",
        [
            line("pod:cpu", 0.9, namespace="s", pod="p", node="0-gone", end=102),
            line("pod:cpu", 0.2, namespace="s", pod="p", node="b", first=100),
        ],
        {99: 900, 100: 200, 101: 200},
    ),
    (
        "another cluster's pod of the same name does not hide ours",
        [
            line("pod:cpu", 0.9, namespace="s", pod="p", node="zz"),
            line("pod:cpu", 0.2, namespace="s", pod="p", node="b"),
        ],
        {0: 200, 287: 200},
    ),
    ("series may name no node", [line("pod:cpu", 0.2, namespace="s", pod="p")], {0: 200}),
    (
        "what is no CPU is left out",
        [line("pod:cpu", {0: "NaN", 1: "+Inf", 2: -1, 3: 0, 4: 6.5, 5: 0.5}, namespace="s", pod="p", node="a")],
        {0: np.nan, 1: np.nan, 2: np.nan, 3: 0, 4: np.nan, 5: 500},
    ),
]


@pytest.mark.parametrize(("lines", "values"), [case[1:] for case in ODD_PODS], ids=[case[0] for case in ODD_PODS])
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
