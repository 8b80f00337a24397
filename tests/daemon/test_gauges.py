"""What the thread of the gauges does besides: a write that failed is tried again."""

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.daemon.threads import gauges
from rebalancer.model.errors import ConnectError
from rebalancer.web import Metrics
from tests.builders import a_policy


class FakeRecords:
    """A database whose disk was full; there is room at the second attempt."""

    def __init__(self, problem: str) -> None:
        self.write_problem = problem
        self.attempts = 0

    def attempt_write(self) -> None:
        self.attempts += 1
        if self.attempts < 2:
            raise ConnectError(self.write_problem)
        self.write_problem = ""


class FakeLedger:
    """It has outcomes that could not be written."""

    def __init__(self) -> None:
        self.attempts = 0

    def write_unwritten(self) -> None:
        self.attempts += 1
        raise ConnectError("the database is away")


def rounds(records: FakeRecords, count: int, monkeypatch: pytest.MonkeyPatch, ledger: FakeLedger | None = None) -> None:
    """So many rounds of the thread."""
    resources: Any = SimpleNamespace(records=records, ledger=ledger or FakeLedger())
    resources.attempt_write = partial(DaemonResources.attempt_write, resources)
    for other in ("_check_cluster", "_export"):
        monkeypatch.setattr(gauges.GaugesThread, other, lambda _: None)
    stopping, left = threading.Event(), iter(range(count))
    monkeypatch.setattr(stopping, "wait", lambda _: next(left, None) is None)
    gauges.GaugesThread(resources=resources, metrics=Metrics(), policy=a_policy).run(stopping)


def test_a_write_that_failed_is_tried_again_without_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    records = FakeRecords("database or disk is full")
    rounds(records, 4, monkeypatch)
    assert records.attempts == 2
    assert records.write_problem == ""


def test_a_database_whose_last_write_worked_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    records = FakeRecords("")
    rounds(records, 4, monkeypatch)
    assert records.attempts == 0


@pytest.mark.parametrize("problem", ["", "the database is away"])
def test_outcomes_that_could_not_be_written_are_tried_in_every_round(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # also after another write that worked, and whoever leads
    ledger, records = FakeLedger(), FakeRecords(problem)
    rounds(records, 4, monkeypatch, ledger)
    assert ledger.attempts == 4
    assert records.write_problem == ""
