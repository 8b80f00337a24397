"""Replacement first that is paused, switched off, approved, or can't be undone: no doubt outlives its cause."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.evict.surges import CALL_SECONDS, finish, finished
from rebalancer.cycle.observe.ledger_state import landed_since
from rebalancer.kube.actions.surges import KubeSurges
from rebalancer.lab import Lab
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.decisions.surges import SurgeCall
from rebalancer.model.reason import Reason
from rebalancer.store.surges import SqlSurges
from tests.kube.fakes.api import client_of_lab
from tests.stories.scenarios.stage import Stage, a_run, a_stage, codes
from tests.stories.scenarios.surges import as_before, living, replicas
from tests.stories.test_approvals import end_of, kept, run_approved
from tests.stories.test_replacement_first import FIRST, one_hot_node, over, passes

SCALE = ("update", "deployments/scale")
NEVER_READY = 36_000.0
HOUR = 3_600.0


def paused(stage: Stage) -> None:
    stage.ledger.pause(Scope.of("cluster", "test"), reason="incident", created_by="ann", until=None)


def pods(stage: Stage) -> set[str]:
    return {each["metadata"]["uid"] for each in living(stage.lab, "single")}


def test_an_approved_move_is_made(tmp_path: Path) -> None:
    with a_stage(one_hot_node(), tmp_path, guards=FIRST, mode="Approve") as stage:
        (proposal,) = stage.turn().proposals
        assert proposal.plan.evictions[0].reason.endswith("replacement first")
        kept(stage).approve(proposal.id, by="ann")
        (report,) = run_approved(stage)
        assert [each.answered.outcome for each in report.evictions] == [Outcome.EVICTED], end_of(stage, proposal)


def test_one_that_cannot_be_scaled_back_holds_up_nothing_but_its_deployment(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=NEVER_READY), tmp_path, guards=FIRST) as stage:
        stage.turn()
        stage.lab.faults.set(denied=(SCALE,))
        assert stage.world.surges is not None
        for _ in range(6):
            stage.lab.clock.sleep(HOUR)
            assert stage.world.surges.turn() == 1
        landed_since(stage.ledger, stage.policy.safety, stage.world.cluster)
        assert stage.ledger.open_evictions() == []
        assert "CircuitBreakerOpen" not in codes(stage.cycle())
        # it is still tried, and ends with its cause
        stage.lab.faults.set(denied=())
        passes(stage, 300.0, until=over(stage))
        assert as_before(stage.lab, "single")


def test_a_run_ends_although_one_cannot_be_scaled_back(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=NEVER_READY), tmp_path, guards=FIRST) as stage:
        evictions = stage.turn().evictions
        stage.lab.faults.set(denied=(SCALE,))
        began = stage.lab.clock.now()
        assert finish(stage.world.surges, evictions, stage.lab.clock) == 1
        assert stage.lab.clock.now() - began < HOUR


def test_a_pause_undoes_one_that_is_open_without_a_backoff(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=60.0), tmp_path, guards=FIRST) as stage:
        (move,) = stage.turn().evictions
        assert replicas(stage.lab, "single") == 2
        paused(stage)
        assert passes(stage, 300.0, until=over(stage))
        assert as_before(stage.lab, "single")
        assert pods(stage) == {move.uid}
        stage.turn()
        assert stage.ledger.open_evictions() == []
        assert stage.ledger.backoffs() == []


def test_a_service_that_the_policy_no_longer_chooses_keeps_its_pod(tmp_path: Path) -> None:
    elsewhere = {**FIRST, "replacementFirst": [{"namespaces": ["elsewhere"]}]}
    with Lab.start(one_hot_node(start_seconds=60.0), stepped=True, start_time=1_790_000_000.0) as lab:
        with a_run(lab, tmp_path, guards=FIRST) as stage:
            (move,) = stage.turn().evictions
        with a_run(lab, tmp_path, guards=elsewhere) as stage:
            assert passes(stage, 300.0, until=over(stage))
            assert as_before(lab, "single")
            assert pods(stage) == {move.uid}


def test_a_call_that_would_leave_late_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a process that was stopped between its row and the call, or a slow credential plugin."""
    monkeypatch.setattr("rebalancer.cycle.evict.surges.SEND_SECONDS", -1.0)
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        (move,) = stage.turn().evictions
        assert (move.answered.outcome, move.answered.code) == (Outcome.REFUSED, Reason.SERVER_ERROR)
        assert passes(stage, 2 * CALL_SECONDS, until=over(stage))
        assert as_before(stage.lab, "single")


def test_without_the_lease_no_call_leaves(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=NEVER_READY), tmp_path, guards=FIRST) as stage:
        stage.turn()
        records = stage.world.records.surges(clock=stage.lab.clock)
        (surge,) = records.open()
        with client_of_lab(stage.lab, tmp_path) as client:
            calls = KubeSurges(client=client)
            refusal: Any = calls.send(SurgeCall.SHRINK, surge, calls.look(surge), may=lambda: False)
        assert "not sent" in refusal.message
        assert replicas(stage.lab, "single") == 2


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=NEVER_READY), tmp_path, guards=FIRST) as stage:
        report = stage.turn()
        assert replicas(stage.lab, "single") == 2
        with pytest.raises(ZeroDivisionError), finished(stage.world.surges, report, stage.lab.clock):
            raise ZeroDivisionError
        stage.lab.clock.sleep(2.0)
        assert as_before(stage.lab, "single")


def test_while_none_is_open_no_row_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = SqlSurges.open
    monkeypatch.setattr(SqlSurges, "open", lambda self: read.append(1) or real(self))
    with a_stage(one_hot_node(start_seconds=30.0), tmp_path, guards=FIRST) as stage:
        assert stage.world.surges is not None
        for _ in range(5):
            stage.world.surges.turn()
        assert len(read) == 1
        stage.turn()  # begins one
        assert passes(stage, 120.0, until=over(stage))
        assert as_before(stage.lab, "single")
        assert len(read) > 2
