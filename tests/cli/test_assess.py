"""Evictions of `run --once` are assessed by the next run on the database, or by `rebalancer assess`."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.store import open_records
from tests.cli.scenarios import Commands, commands_on_the_lab
from tests.programs.cli import Result
from tests.programs.in_process import run_here

MINUTE = 60.0
SETTLED = 17 * MINUTE
"""Two minutes after the settling time of 15 minutes."""


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Commands]:
    with commands_on_the_lab(monkeypatch, tmp_path) as commands:
        yield commands


def report_at_lab_time(it: Commands, monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    monkeypatch.setattr(time, "time", it.lab.clock.now)
    return run_here(["report", "--utc", "-f", str(it.policy), "--database", it.database, *more])


def test_the_next_run_assesses_the_evictions_of_the_one_before(it: Commands) -> None:
    relieved = {each["node"] for each in it.document("run", "--once", "--no-wait")["evictions"]}
    it.lab.clock.sleep(SETTLED)
    shown = it.run("run", "--once", "--no-wait").out
    assert f"{len(relieved)} assessments of earlier evictions made before this cycle" in shown
    with open_records(url=it.database, cluster="demo", clock=it.lab.clock) as records:
        made = [each for each in records.effect().assessments(0.0, 2e9) if each.assessed_at is not None]
    assert {each.node for each in made} == relieved
    assert "cooled" in {str(each.outcome) for each in made} <= {"cooled", "remainingPodsGrew"}
    assert not any(each.late for each in made)


def test_assess_makes_what_is_due_and_the_report_has_its_rates(it: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    evictions = it.document("run", "--once", "--no-wait")["evictions"]
    assert it.document("assess") == {"schemaVersion": "2", "assessments": [], "pending": 0, "notes": []}
    it.lab.clock.sleep(SETTLED)
    nodes = {each["node"] for each in evictions}
    overdue = f"{len(nodes)} assessments overdue: made by a daemon, by the next `rebalancer run --once`, or by"
    assert overdue in " ".join(report_at_lab_time(it, monkeypatch).out.split())
    assessed = it.document("assess")["assessments"]
    assert {each["node"] for each in assessed} == nodes
    outcomes = [each["outcome"] for each in assessed]
    assert "cooled" in set(outcomes) <= {"cooled", "remainingPodsGrew"}
    assert it.document("assess")["assessments"] == []
    it.lab.clock.sleep(60 * MINUTE)
    assert " hour " in it.run("assess").out
    report = report_at_lab_time(it, monkeypatch, "-o", "json").document
    assert "overdue" not in str(report["notes"])
    assert report["total"]["effectiveness"]["part"] == outcomes.count("cooled")
    assert report["total"]["effectiveness"]["whole"] == len(outcomes)


def test_what_cannot_be_assessed_has_an_exit_code(it: Commands) -> None:
    it.document("run", "--once", "--no-wait")
    it.lab.clock.sleep(SETTLED)
    it.policy.write_text(it.policy.read_text().replace("sum_rate5m", "sum_rate5m_of_nothing"))
    done = it.run("assess")
    assert done.code == 3
    assert "not assessed" in done.out


def test_assess_without_a_database_names_it(it: Commands) -> None:
    done = it.run("assess")
    assert done.code == 4
    assert "no such database" in done.err
