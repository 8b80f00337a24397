"""The same fact is the same through every command: on one practice cluster, from a plan to the next cycle."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cycle.evict.waiting import READY
from tests.cli.scenarios import Commands, commands_on_the_lab


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Commands]:
    with commands_on_the_lab(monkeypatch, tmp_path) as commands:
        yield commands


def in_flight_by_limits(it: Commands) -> int:
    [line] = [
        each
        for each in it.document("limits")["limits"]
        if each["scope"] == "cluster" and each["limit"].endswith("in flight")
    ]
    return int(line["used"])


def test_status_and_limits_count_the_same_evictions_in_flight(it: Commands) -> None:
    evicted = it.document("run", "--once", "--no-wait")["evictions"]
    assert in_flight_by_limits(it) == len(it.document("status")["inFlight"]) == len(evicted)
    it.lab.clock.sleep(60.0)
    assert in_flight_by_limits(it) == len(it.document("status")["inFlight"]) == 0
    assert "no evictions in flight" in it.run("status").out


def test_limits_of_which_nothing_is_used_are_one_line(it: Commands) -> None:
    total = len(it.document("limits")["limits"])
    assert it.run("limits").out == f"Nothing is used of {total} limits; all are shown with -o wide.\n"
    assert len(it.run("limits", "-o", "wide").out.splitlines()) == total + 2
    it.document("run", "--once", "--no-wait")
    lines = it.document("limits")["limits"]
    used = [each for each in lines if each["used"]]
    shown = it.run("limits").out.splitlines()
    assert len(shown) == len(used) + 3
    assert shown[-1].startswith(f"Nothing is used of {len(lines) - len(used)} other limit")


def test_status_without_the_cluster_says_what_it_does_not_know(it: Commands) -> None:
    evicted = it.document("run", "--once", "--no-wait")["evictions"]
    done = it.run("status", kubeconfig=it.folder / "missing")
    assert done.code == 0
    assert done.out.count("gen-") + done.out.count("cmp-") == len(evicted)
    assert "as the last cycle recorded it" in done.out


def test_limits_and_status_need_nothing_of_prometheus(it: Commands) -> None:
    text = it.policy.read_text()
    it.document("run", "--once", "--no-wait")
    it.policy.write_text(re.sub(r"url: .*", r"\g<0>\n    bearerTokenFile: missing", text))
    assert "missing" in it.run("plan").err
    assert it.document("limits")["limits"]
    assert it.document("status")["inFlight"]


def test_a_run_that_waits_leaves_nothing_in_flight(it: Commands) -> None:
    it.document("run", "--once")
    with it.ledger() as ledger:
        assert ledger.open_evictions() == []


def test_the_progress_counts_evictions_and_ends_when_all_replacements_are_ready(
    it: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[float, str, int, int | None]] = []

    def step(_: object, label: str, done: int, total: int | None) -> None:
        steps.append((it.lab.clock.now(), label, done, total))

    monkeypatch.setattr(TerminalProgress, "step", step)
    evicted = len(it.document("run", "--once")["evictions"])
    ready = [each for each in steps if each[1] == READY]
    window = next(at for at, label, *_ in steps if label == "a full rate window")
    assert {total for *_, total in ready[-2:]} == {evicted}
    # the bar ends when the last replacement is Ready, not after the rate window
    assert ready[-1][0] <= window
    assert ready[-1][2:] == (evicted, evicted)


def peaks(it: Commands) -> dict[str, Any]:
    return {each["node"]: each for each in it.document("forecast")["nodes"]}


def test_a_cooled_node_is_not_forecast_to_be_hot_by_the_pods_that_left_it(it: Commands) -> None:
    before = peaks(it)
    planned = {each["name"]: each for each in it.document("run", "--once", "--no-wait")["nodes"]}
    relieved = [name for name, each in planned.items() if each["hot"]]
    it.lab.clock.sleep(60.0)
    after = peaks(it)
    assert relieved
    for name in relieved:
        assert before[name]["hot"]
        assert not after[name]["hot"]
        share = planned[name]["cpuSharePlanned"]
        assert after[name]["peakShare"] == pytest.approx(share, abs=0.05)


def test_a_plan_says_which_forecast_it_was_made_with(it: Commands) -> None:
    folder = it.folder / "history" / "demo"
    assert not it.document("plan")["cycle"]["notes"], "by default no plan is made with one"
    it.policy.write_text(it.policy.read_text() + "\nforecast: {mode: Act}\n")
    [note] = it.document("plan")["cycle"]["notes"]
    assert note.startswith(f"planned without a forecast: no usage history in {folder} (")
    it.document("forecast")
    planned = it.document("plan")
    ran = it.document("run", "--once", "--no-wait")
    for each in (planned, ran):
        [note] = each["cycle"]["notes"]
        assert re.fullmatch(rf"planned with a forecast: the usage history in {folder} ends \d+m ago", note)
    it.lab.clock.sleep(8 * 3600.0)
    [note] = it.document("plan")["cycle"]["notes"]
    assert re.match(rf"planned without a forecast: the usage history in {folder} ends 8h\w* ago ", note)
