"""What `status` says of the last cycle."""

from pathlib import Path

from rebalancer.bootstrap.commands.ledger_view import failed_parts
from rebalancer.store import open_records, upgrade
from tests.store.builders import CLUSTER, NOW, SteppingClock, build_report

FAILED = "part failed: strategy RemoveFailedPods, since 2026-03-02T10:00:00Z, once: TypeError"


def test_parts_that_fail_are_known_while_a_cycle_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    with open_records(url=url, cluster=CLUSTER, clock=SteppingClock()) as records:
        assert failed_parts(records) == ()
        done = build_report(cycle="c1", notes=[FAILED, "another note"])
        records.begin(done)
        done.finished_at = NOW + 5.0
        records.finish(done)
        assert failed_parts(records) == (FAILED,)
        running = build_report(cycle="c2", started_at=NOW + 10.0)
        records.begin(running)
        assert failed_parts(records) == (FAILED,)
        # the part works again
        running.finished_at = NOW + 20.0
        records.finish(running)
        assert failed_parts(records) == ()
