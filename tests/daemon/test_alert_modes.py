"""What an alert's cycle came to for a node whose pool or strategy is in dry run."""

import pytest

from rebalancer.model.decisions.eviction import Outcome
from tests.builders import an_eviction
from tests.daemon.test_alert_requests import report, result_of
from tests.store.builders import build_finding

PLANNED, EVICTED = Outcome.PLANNED, Outcome.EVICTED


@pytest.mark.parametrize(
    ("evictions", "result"),
    [
        ([(True, PLANNED), (True, PLANNED)], "2 would be evicted (dry run)"),
        ([(False, EVICTED), (True, PLANNED)], "1 evicted"),
        ([(False, Outcome.UNKNOWN)], "1 evicted"),
    ],
)
def test_evictions_in_dry_run_are_told_as_such(evictions: list[tuple[bool, Outcome]], result: str) -> None:
    made = [an_eviction(dry_run=dry_run, outcome=outcome) for dry_run, outcome in evictions]
    assert result_of(report(findings=[(build_finding(), "n1")], evictions=made))[0] == result
