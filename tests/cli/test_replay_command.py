"""`rebalancer replay` with a recording that was made, not read."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from bench.replays.cluster import START as MONDAY
from bench.replays.cluster import make
from rebalancer.bootstrap.process.paths import newest_replay
from rebalancer.bootstrap.recordings import replay as replays
from rebalancer.cli.common import Stopped, parse_policy
from rebalancer.cli.main import _stop, app
from rebalancer.model.recordings.recording import Gap, Recording
from rebalancer.model.recordings.replay import Replay
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.variants import Variant
from tests.cli.builders import HOUR, START, a_replay, a_run
from tests.programs.cli import Result
from tests.programs.in_process import run_here

BALANCED = (Path(__file__).parents[2] / "policies" / "balanced.yaml").read_text()
COOL = BALANCED
for old, new in (
    ("high: 75", "high: 45"),
    ("target: 65", "target: 41"),
    ("low: 55", "low: 40"),
    ("minReplicas: 2", "minReplicas: 1"),
    ("args: {source: CPU}", "args: {source: CPU}\n    interval: 10m"),
):
    COOL = COOL.replace(old, new)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REBALANCER_HISTORY_DIR", str(tmp_path / "history"))
    (tmp_path / "policy.yaml").write_text(COOL)
    (tmp_path / "other.yaml").write_text(COOL.replace("target: 41", "target: 44"))
    return tmp_path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """An hour and a half of twelve nodes; the arguments of each reading."""
    made, calls = replace(make(12, 220, 1 / 16, 3), gaps=(Gap("levels are those of today", 3),)), list[dict[str, Any]]()

    def read(policy: object, settings: object, *, progress: object, **options: Any) -> Recording:
        calls.append(options)
        return made

    monkeypatch.setattr(replays, "recorded", read)
    return calls


def call(folder: Path, *words: str) -> Result:
    done = run_here(["replay", "-f", str(folder / "policy.yaml"), "--workers", "1", *words], columns=80)
    assert done.code == 0, done.err
    return done


def test_a_note_says_how_much_of_the_time_is_covered(folder: Path, recorded: list[dict[str, Any]]) -> None:
    note = "covers 1h30m of the 2d asked for"
    assert note in json.loads(call(folder, "--since", "2d", "-o", "json").out)["notes"]
    assert f"Note: {note}" in call(folder, "--since", "2d").out
    assert "asked for" not in call(folder, "--since", "95m").out


def test_policies_are_replayed_side_by_side(folder: Path, recorded: list[dict[str, Any]]) -> None:
    before = time.time()
    document = json.loads(call(folder, "--against", str(folder / "other.yaml"), "-o", "json").out)
    assert [run["label"] for run in document["runs"]] == ["as recorded", "policy.yaml", "other.yaml"]
    assert document["runs"][0]["evictions"] == 0 < document["runs"][1]["evictions"]
    assert document["since"] == "2026-09-21T00:00:00+00:00"
    assert document["gaps"] == [{"text": "levels are those of today", "pods": 3}]
    assert not document["interrupted"]
    (options,) = recorded
    assert options["end"] - options["start"] == pytest.approx(7 * 86_400, abs=1)
    assert before <= options["end"] <= time.time()
    assert options["source"] is None


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, recorded: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Takes the place of the simulation."""

    def use(instead: Callable[..., Replay]) -> None:
        monkeypatch.setattr(replays, "replay", instead)

    return use


def test_a_sweep_with_a_goal_names_the_cheapest_run_and_the_piece_to_paste(
    folder: Path, replayed: Callable[[Any], None]
) -> None:
    def instead(recording: Recording, policy: RebalancerPolicy, variants: Sequence[Variant], **_: Any) -> Replay:
        assert policy.pools[0].thresholds.target == 41
        assert [each.policy.pools[0].thresholds.target for each in variants] == [41, 44]
        runs = [a_run(each.label, evictions=20 - 5 * at) for at, each in enumerate(variants)]
        return a_replay(*runs, parts={each.label: each.part for each in variants})

    replayed(instead)
    sweep = ("--sweep", "pools[0].thresholds.target=41,44", "--goal", "hot<=2%")
    document = json.loads(call(folder, *sweep, "-o", "json").out)
    assert [run["label"] for run in document["runs"]] == ["as recorded", "target=41", "target=44"]
    assert document["goal"]["run"] == "target=44"
    assert yaml.safe_load(document["goal"]["part"]) == {"pools": [{"name": "general", "thresholds": {"target": 44}}]}
    text = call(folder, *sweep).out
    assert "Goal: hot<=2% is kept with the fewest evictions by target=44: 15 evictions" in text
    assert document["goal"]["part"].strip() in text


def test_what_each_rule_costs_is_shown_by_a_run_without_it(folder: Path, replayed: Callable[[Any], None]) -> None:
    def instead(recording: Recording, policy: RebalancerPolicy, variants: Sequence[Variant], **_: Any) -> Replay:
        lifted = {each.label: each.policy for each in variants[1:]}
        assert variants[0].policy == policy
        assert policy not in lifted.values()
        assert lifted["limits.node lifted"].limits.node.evictions == ()
        assert lifted["limits.node lifted"].limits.pool == policy.limits.pool
        runs = [a_run(variants[0].label, evictions=14), a_run("limits.node lifted", hot_nodes=0, evictions=20)]
        return a_replay(*runs, a_run("guards.minAge lifted", hot_nodes=2, evictions=13))

    replayed(instead)
    document = json.loads(call(folder, "--lift", "-o", "json").out)
    assert document["rules"] == [
        {"rule": "limits.node", "hotNodeHours": 7, "evictions": 6},
        {"rule": "guards.minAge", "hotNodeHours": -7, "evictions": -1},
    ]
    rows = [line.split() for line in call(folder, "--lift").out.splitlines()]
    assert ["limits.node", "7", "6"] in rows
    assert ["guards.minAge", "-7", "-1"] in rows
    assert not [row for row in rows if row[1:2] == ["lifted"]]


def test_a_complete_replay_is_kept_as_the_newest_page(folder: Path, replayed: Callable[[Any], None]) -> None:
    replayed(lambda *_, **__: a_replay())
    done = call(folder)
    page = newest_replay(str(folder / "history"), "my-cluster")
    assert "Replay of Mon 21 Sep" in page.read_text()
    assert [path.name for path in page.parent.iterdir()] == ["replay.html"]
    assert f"page: {page}" in done.err
    assert "hot node-hours 42 -> 7" in done.out
    call(folder, "-o", "html", "--file", str(folder / "mine.html"))
    assert (folder / "mine.html").read_text().startswith("<!doctype html>")


def test_ctrl_c_prints_the_partial_result_and_ends_with_130(
    folder: Path, replayed: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[bool]()

    def interrupted(*_: object, stopping: Callable[[], bool], **__: object) -> Replay:
        asked.append(stopping())
        os.kill(os.getpid(), signal.SIGINT)
        asked.append(stopping())
        return a_replay(a_run(until=START + 36 * HOUR))

    replayed(interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped) as stopped:
        run(["replay", "--utc", "-f", str(folder / "policy.yaml")])
    assert stopped.value.number == signal.SIGINT
    assert asked == [False, True]
    assert signal.getsignal(signal.SIGINT) is before
    out = " ".join(capsys.readouterr().out.split())
    assert "Interrupted: all figures are until Tue 2026-09-22 12:00" in out
    assert "hot node-hours 12 -> 2" in out
    assert not newest_replay(str(folder / "history"), "my-cluster").exists()


def test_a_second_ctrl_c_ends_at_once(folder: Path, replayed: Callable[[Any], None]) -> None:
    def interrupted(*_: object, **__: object) -> Replay:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    replayed(interrupted)
    before = signal.signal(signal.SIGINT, _stop)
    try:
        with pytest.raises(Stopped):
            run(["replay", "-f", str(folder / "policy.yaml")])
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_simulation_stops_where_it_is_asked_to() -> None:
    made, steps = make(12, 220, 1 / 16, 3), list[int]()

    def stopping() -> bool:
        steps.append(1)
        return len(steps) > 10

    policy = parse_policy(COOL.encode(), path=Path("policy.yaml"))
    variants = [Variant(label=label, policy=policy, part="") for label in ("one", "two")]
    replay = replays.replay(made, policy, variants, stopping=stopping)
    assert [run.label for run in replay.runs] == ["one"]
    assert MONDAY < replay.runs[0].until < replay.end
    assert replay.as_recorded.until == replay.end


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--file", "x.html"), "--file: expected with -o json, yaml, csv or html"),
        (("--since", "1h", "--until", "2h"), "--since 1h: expected a time before --until 2h"),
        (("--since", "yesterday"), "--since: expected an age such as 7d"),
        (("--goal", "warm<=1%"), "--goal warm<=1%: unknown figure warm"),
        (("--against", "{policy}"), "expected each policy file once"),
        (("--lift", "--sweep", "planner.worth=Minimal"), "--lift: expected without --sweep"),
        (("--sweep", "pools[0].high"), "--sweep pools[0].high: expected a field and its values"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    words: Sequence[str], message: str, folder: Path, recorded: list[dict[str, Any]]
) -> None:
    policy = str(folder / "policy.yaml")
    done = run_here(["replay", "-f", policy, *(word.format(policy=policy) for word in words)])
    assert done.code == 4
    assert message in done.err
    assert recorded == []


def run(words: Sequence[str]) -> None:
    typer.main.get_command(app).main(list(words), standalone_mode=False)
