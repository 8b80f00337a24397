"""When a leader's cycles are late."""

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.daemon.readiness import Readiness
from tests.builders import a_policy


@dataclass
class Leads:
    leads: bool = True

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return self.leads


def readiness(*, leads: bool, seconds: float) -> Readiness:
    """Of a replica whose last cycle ended so long ago; a cycle is due every 2 minutes."""
    parts: Any = {"resources": SimpleNamespace(leadership=Leads(leads)), "file": None, "heartbeat": None}
    active: Any = SimpleNamespace(policy=a_policy())
    return Readiness(active=lambda: active, _cycle_due_since=time.monotonic() - seconds, **parts)


@pytest.mark.parametrize(
    ("leads", "seconds", "said"),
    [(True, 400, ""), (True, 440, "the last one ended 440s ago, one is due every 120s"), (False, 440, "")],
)
def test_cycles_of_a_leader_are_late_after_three_intervals_and_a_minute(leads: bool, seconds: float, said: str) -> None:
    assert readiness(leads=leads, seconds=seconds).overdue() == said


def test_after_a_cycle_none_is_late() -> None:
    of = readiness(leads=True, seconds=900)
    assert of.overdue()
    of.cycle_done()
    assert of.overdue() == ""
