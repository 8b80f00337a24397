"""A few hundred strangers. `make fuzz` lets 100,000 come."""

from pathlib import Path

from tests.faults.scenarios.fuzz import fuzz


def test_a_daemon_among_odd_objects_goes_on_and_evicts_nobody_else_s_pods(tmp_path: Path) -> None:
    found = fuzz(tmp_path, objects=600, seed=1, batch=300)
    assert found.wrong == []
    assert found.objects == 600
    assert found.events > 600
    assert found.cycles >= 3
    assert found.alerts == 1
