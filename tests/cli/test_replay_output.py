"""The tables and the document of `rebalancer replay`."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator

from rebalancer.cli.output.formats import csv_text, yaml_text
from rebalancer.cli.output.json import as_text, encode
from rebalancer.cli.output.replay import print_replay, replay_document, replay_schema, when
from rebalancer.cli.output.tables import Screen
from rebalancer.model.reason import Reason
from rebalancer.model.recordings.replay import HotBound, Replay, ReplayedCycle
from rebalancer.replay.comparison.summary import summary_of
from tests.cli.builders import HOUR, START, a_capacity, a_replay, a_run

WIDTH = 80


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def shown(replay: Replay, *, wide: bool = False) -> str:
    screen = Screen(file=io.StringIO(), wide=wide)
    print_replay(screen, summary_of(replay, when)[1], wide=wide)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_first_lines_say_what_the_policy_would_have_done() -> None:
    text = flat(shown(a_replay()))
    begin = text[: text.index("Runs;")]
    for each in (
        "Replay of cluster blue: Mon 2026-09-21",
        "8 nodes, 240 pods, from Prometheus at http://prometheus:9090.",
        "With policy.yaml: hot node-hours 42 -> 7 (-83%)",
        "14 evictions, 0.4 for each hour relieved; of 6 services, at most 2 at a time",
        "Moved most: shop/cart (3), shop/checkout (3), batch/report (2)",
        "Kept hot longest: 7 node-hours by NoNodeWithHeadroom, most at Mon 2026-09-21 10:00",
        "no node of general has 1.65 cores of headroom (0)",
    ):
        assert each in begin, each


@pytest.mark.parametrize(
    ("large", "capacity", "sentence"),
    [
        (0.5, 0.0, "At least 16.8 hot node-hours stay whatever is evicted: 16.8 by pods that use more than any node"),
        (0.0, 0.25, "At least 8.4 hot node-hours stay whatever is evicted: 8.4 as all pods together use more than"),
        (0.0, 0.0, "None of them must stay: with pods placed and moved at will no node would have been hot."),
    ],
)
def test_the_bound_says_what_no_eviction_can_remove(large: float, capacity: float, sentence: str) -> None:
    steps = 168 * 12
    replay = a_replay(bound=HotBound(np.full(steps, large), np.full(steps, capacity)))
    assert f"Bound: {sentence}" in flat(shown(replay))
    summary = summary_of(replay, when)[1]
    assert summary.bound.hot_node_hours == pytest.approx(summary.bound.large_pods + summary.bound.capacity)


def test_the_capacity_of_each_pool_is_a_sentence_and_ends_with_an_interruption() -> None:
    short = tuple((START + at * HOUR, START + (at + 2) * HOUR) for at in (9, 33, 57, 81))
    lacking = a_capacity("batch", node_millicores=8_000.0, missing=2, hot_node_minutes=90.0, short=short)
    hopeless = a_capacity("spot", missing=None, short=short[:1])
    replay = a_replay(capacity=(lacking, a_capacity(), hopeless))
    text = flat(shown(replay))
    assert (
        "Capacity: Pool general lacks no node. To spare of its 6 nodes of 16 cores: at most 3 by usage, 1 by requests."
    ) in text
    assert "Capacity: Pool batch lacks at least 2 nodes of 8 cores, in 8 hours: Mon 2026-09-21 " in text
    assert "and 1 more." in text
    assert "Pool spot lacks more than nodes of 16 cores could give, in 2 hours: Mon" in text
    found = json.loads(as_text(replay_document(summary_of(replay, when)[1])))["capacity"][0]
    assert (found["pool"], found["missing"], found["hotNodeHours"]) == ("batch", 2, 1.5)
    assert found["short"][0] == {"since": "2026-09-21T09:00:00+00:00", "until": "2026-09-21T11:00:00+00:00"}
    assert "Capacity:" not in shown(a_replay(a_run(until=START + 36 * HOUR)))


def test_runs_stand_side_by_side_with_pools_reasons_gaps_and_the_error() -> None:
    text = shown(a_replay(a_run(evictions=14), a_run("other.yaml", hot_nodes=2, evictions=3)))
    rows = [line.split() for line in text.splitlines()]
    assert ["as", "recorded", "42", "3.1%", "0", "0", "0"] in rows
    assert ["policy.yaml", "7", "0.5%", "14", "2", "6"] in rows
    assert ["other.yaml", "14", "1%", "3", "2", "3"] in rows
    assert ["general", "policy.yaml", "75%", "7", "0.7%", "14"] in rows
    assert ["batch", "policy.yaml", "90%", "0", "0%", "0"] in rows
    assert [Reason.NO_NODE_WITH_HEADROOM.value, "7", "1", "2026-09-21", "10:00"] in [row[:5] for row in rows]
    whole = flat(text)
    assert "Replay error: The run as recorded gives 42 hot node-hours; 41.9 were measured (+0.2%)." in whole
    assert "Gap: affinity and tolerations are those of today's objects (212 pods)" in whole
    assert "Gap: autoscalers are not replayed" in whole


@pytest.mark.parametrize(
    "labels", [("a.yaml", "b.yaml"), tuple(f"thresholds.high={each}" for each in range(60, 90, 5))]
)
def test_no_line_is_longer_than_80_columns(labels: tuple[str, ...]) -> None:
    runs = [a_run(label, evictions=9 * number, hot_nodes=number % 3) for number, label in enumerate(labels, start=1)]
    for line in shown(a_replay(*runs)).splitlines():
        assert len(line) <= WIDTH, line


def test_cycles_that_stopped_are_a_column_and_a_reason() -> None:
    run = a_run(evictions=1)
    stopped = ReplayedCycle(
        at=START + 10 * HOUR, trigger="schedule", hot=1, evicted=0, stopped="usage is stale: 9m old"
    )
    text = shown(a_replay(replace(run, cycles=(stopped,))))
    assert "1 of 1" in text
    assert "stopped: usage is stale: 9m old" in text


def test_the_document_follows_its_schema() -> None:
    replays = [
        a_replay(),
        a_replay(a_run(hot=(), hot_nodes=0)),
        replace(a_replay(), measured_hot_minutes=a_replay().measured_hot_minutes * 0),
    ]
    validator = Draft202012Validator(replay_schema())
    for replay in replays:
        document = {"schemaVersion": "2", **replay_document(summary_of(replay, when)[1])}
        read = json.loads(as_text(document))
        assert [error.message for error in validator.iter_errors(read)] == []
        assert yaml.safe_load(yaml_text(document)) == read
    text = as_text(replay_document(summary_of(a_replay(), when)[1]))
    found = json.loads(text)
    assert found["runs"][1]["hotNodeHours"] == 7
    assert found["runs"][1]["evictions"] == len(found["evictions"]) == 14
    assert found["evictions"][0]["at"] == "2026-09-21T09:00:00+00:00"
    assert found["error"] == pytest.approx(42 / 41.9167 - 1, abs=1e-4)
    assert found["gaps"][0] == {"text": "affinity and tolerations are those of today's objects", "pods": 212}


def test_csv_has_a_row_for_each_run() -> None:
    head, *rows = csv_text(encode(replay_document(summary_of(a_replay(), when)[1])["runs"])).splitlines()
    assert head.split(",")[:4] == ["label", "until", "hotNodeHours", "hotShare"]
    assert [row.split(",")[0] for row in rows] == ["as recorded", "policy.yaml"]


def test_an_interrupted_run_gives_all_figures_until_it_ended() -> None:
    partial = a_run(evictions=14, until=START + 36 * HOUR)
    replay, summary = summary_of(a_replay(partial), when)
    assert summary.replayed.interrupted
    assert {line.until for line in summary.runs} == {START + 36 * HOUR}
    assert [line.hot_node_hours for line in summary.runs] == [12.0, 2.0]
    assert replay.as_recorded.hot_minutes.shape[1] == 36 * 12
    assert summary.measured_hot_node_hours == pytest.approx(12 - 5 / 60)
    text = flat(shown(a_replay(partial)))
    assert re.search(r"Note: Interrupted: all figures are until Tue 2026-09-22 \d\d:00 \w+, not Mon 2026-09-28", text)


def test_a_finished_run_keeps_its_figures_when_a_later_one_is_interrupted() -> None:
    half = a_run("other.yaml", until=START + 36 * HOUR)
    _, summary = summary_of(a_replay(a_run(evictions=14), half), when)
    assert [line.label for line in summary.runs] == ["as recorded", "policy.yaml"]
    assert summary.before.hot_node_hours == 42
    assert any(note.startswith("other.yaml: interrupted at Tue 2026-09-22") for note in summary.notes)


def test_a_replay_that_was_interrupted_at_once_is_still_shown() -> None:
    assert "No evictions" in shown(a_replay(a_run(until=START)))
    text = flat(shown(replace(a_replay(), runs=())))
    assert "policy.yaml: interrupted before all of it began, left out" in text
    assert "as recorded 42 3.1%" in text
