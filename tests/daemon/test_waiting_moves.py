"""The worker and moves that wait: the next cycle comes with the replacement, not with the period, and the wait ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rebalancer.cycle.next_cycle import PATIENCE_SECONDS, PAUSE_SECONDS
from rebalancer.model.eviction import Outcome
from rebalancer.model.plan import CycleReport, Trigger
from tests.builders import an_eviction
from tests.daemon.test_worker import Around, around, for_node

BEFORE_RETRY = 40
"""Seconds after which an alert has not been tried again yet."""


class LeavesMoves:
    """Records of cycles that leave a move waiting, at most so many of them."""

    def __init__(self, records: Any, *, cycles: list[int], not_before: float | None) -> None:
        self._records = records
        self._cycles = cycles
        self._not_before = not_before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def finish(self, report: CycleReport) -> None:
        if self._cycles[0] > 0:
            self._cycles[0] -= 1
            report.waiting = [an_eviction(waits_for="a replacement to be Ready", not_before=self._not_before)]
        self._records.finish(report)


def leaving(cycles: int, *, not_before: float | None = None) -> Callable[[Any], LeavesMoves]:
    left = [cycles]
    return lambda records: LeavesMoves(records, cycles=left, not_before=not_before)


def let_pass(it: Around, seconds: int) -> None:
    """The worker's loop, once a second."""
    for _ in range(seconds):
        it.lab.clock.sleep(1.0)
        it.worker.work(None)


def began(it: Around) -> list[float]:
    return [report.started_at - it.reports[0].started_at for report in it.reports]


def test_the_next_cycle_comes_when_the_replacement_is_ready_with_scope_and_trigger_of_the_plan(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=leaving(1)) as it:
        it.alert("warm-1")
        it.worker.work(None)
        assert it.worker.work(None) is None
        let_pass(it, BEFORE_RETRY)
        [ready] = [each.at for each in it.lab.log.entries("ready") if each.at > it.reports[0].started_at]
        _, second = it.reports
        assert 0.0 <= second.started_at - ready <= PAUSE_SECONDS + 1.0
        assert second.trigger is Trigger.ALERT
        assert {name for _, name in second.findings} <= {"warm-1"}  # the others are not hot by the pool's high


def test_the_next_cycle_comes_at_the_expected_time_when_nothing_is_in_flight(tmp_path: Path) -> None:
    with around(tmp_path) as it:
        expected = it.lab.clock.now() + 40.0
    with around(tmp_path, wrap_records=leaving(1, not_before=expected)) as it:
        it.worker.work(for_node("cold-1"))
        let_pass(it, int(PATIENCE_SECONDS))
        assert len(it.reports) == 2
        assert 0.0 <= it.reports[1].started_at - expected <= 2.0


def test_moves_that_wait_in_vain_cost_few_cycles_and_end_with_patience(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=leaving(1000, not_before=0.0)) as it:
        it.worker.work(for_node("cold-1"))
        let_pass(it, int(2 * PATIENCE_SECONDS))
        assert [round(at) for at in began(it)] == [0, 5, 15, 35, 75]
        it.worker.work(for_node("cold-1"))  # the next regular cycle waits anew
        let_pass(it, int(PAUSE_SECONDS))
        assert len(it.reports) == 7


def test_a_cycle_for_something_else_covers_the_waiting_moves_too(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=leaving(1)) as it:
        it.alert("warm-1")
        it.worker.work(None)
        report = it.worker.work(for_node("cold-1", Trigger.PERIODIC))
        assert report is not None
        assert report.trigger is Trigger.ALERT
        assert "warm-1" in {name for _, name in report.findings} | {each.node for each in report.refusals}


def test_a_dry_run_waits_for_nothing(tmp_path: Path) -> None:
    with around(tmp_path, dry_run=True, wrap_records=leaving(1000, not_before=0.0)) as it:
        it.alert("warm-1")
        it.worker.work(None)
        let_pass(it, 30)
        assert [[each.outcome for each in report.evictions] for report in it.reports] == [[Outcome.PLANNED]]


def test_a_leader_that_leads_no_more_leaves_waiting_moves_to_the_next(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=leaving(1, not_before=0.0)) as it:
        it.worker.work(for_node("cold-1"))
        it.leads[:] = [False]
        it.stopping[:] = [False, True]
        it.worker.run()
        it.leads[:], it.stopping[:] = [True], [False]
        let_pass(it, 30)
        assert len(it.reports) == 1


def test_a_cluster_that_cannot_be_read_delays_the_next_cycle_and_no_more(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=leaving(1)) as it:
        it.alert("warm-1")
        it.worker.work(None)
        it.lab.faults.set(error_share=1.0, sides=("kubernetes",))
        let_pass(it, 7)
        assert (len(it.reports), it.failures) == (1, [])
        it.lab.faults.clear()
        let_pass(it, BEFORE_RETRY - 7)
        assert len(it.reports) == 2
