"""The worker and what is approved: begun within one nap, before other work, on the leader alone."""

from pathlib import Path

import pytest

from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.daemon.threads.worker import APPROVALS, LONGEST_NAP_SECONDS
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.model.errors import ConnectError
from rebalancer.store import SqlProposals
from tests.daemon.test_worker import Around, Patience, around
from tests.e2e.servers import ALERT

POOLS = [{"name": "all", "mode": "Approve", "selector": {}, "thresholds": {"high": 60, "target": 50}}]


def kept(it: Around) -> SqlProposals:
    found = it.worker.active().context.proposals
    assert isinstance(found, SqlProposals)
    return found


def proposed(it: Around) -> Proposal:
    [proposal] = it.work(CycleRequest(trigger=Trigger.PERIODIC)).proposals
    assert it.evicted() == []
    return proposal


def test_an_approval_needs_no_request_and_is_looked_for_at_each_turn(tmp_path: Path) -> None:
    with around(tmp_path, pools=POOLS) as it:
        it.lab.clock.sleep(30)
        proposal = proposed(it)
        kept(it).approve(proposal.id, by="ann")
        patience = Patience()
        it.worker.queue = patience
        it.stopping[:] = [False, False, True]
        it.worker.run()
        assert it.evicted() == [each.node for each in proposal.plan.evictions]
        assert [each.trigger for each in it.reports] == [Trigger.PERIODIC, Trigger.APPROVAL]
        # a turn is as long as a nap at most; an approval through this process ends it at once, as an alert does
        assert max(patience.waits) <= LONGEST_NAP_SECONDS <= 5.0


def test_it_goes_before_the_request_of_the_same_turn(tmp_path: Path) -> None:
    with around(tmp_path, pools=POOLS) as it:
        it.lab.clock.sleep(30)
        proposal = proposed(it)
        kept(it).approve(proposal.id, by="ann")
        it.queue.put(CycleRequest(trigger=Trigger.PERIODIC))
        it.stopping[:] = [False, False, False, True]
        it.worker.run()
        assert [each.trigger for each in it.reports][1:] == [Trigger.APPROVAL, Trigger.PERIODIC]


def test_one_that_is_no_leader_and_one_in_dry_run_begin_nothing(tmp_path: Path) -> None:
    with around(tmp_path, pools=POOLS) as it:
        it.lab.clock.sleep(30)
        kept(it).approve(proposed(it).id, by="ann")
        it.leads[:] = [True, False]
        it.stopping[:] = [False, True]
        it.worker.run()
        it.leads[:], it.stopping[:] = [True], [False]
        it.worker.dry_run = True
        it.worker.carry_out_approved()
        assert it.evicted() == []
        it.worker.dry_run = False
        it.worker.carry_out_approved()
        assert it.evicted()


def test_an_alert_says_that_its_pods_are_proposed(tmp_path: Path) -> None:
    with around(tmp_path, pools=[{**POOLS[0], "thresholds": {"high": 90, "target": 80}}]) as it:
        it.lab.clock.sleep(30)
        it.alert("warm-1")
        [proposal] = it.work().proposals
        assert it.state("warm-1") == ("open", "1 proposed, to be approved")
        # hot by the alert's threshold alone, which the proposal keeps
        assert [each.source for each in proposal.plan.thresholds] == [f"alert {ALERT}"]


def test_what_an_alert_has_proposed_is_carried_out_by_its_thresholds(tmp_path: Path) -> None:
    with around(tmp_path, pools=[{**POOLS[0], "thresholds": {"high": 90, "target": 80}}]) as it:
        it.lab.clock.sleep(30)
        it.alert("warm-1")
        [proposal] = it.work().proposals
        kept(it).approve(proposal.id, by="ann")
        it.worker.carry_out_approved()
        assert it.evicted() == ["warm-1"]


def test_where_prometheus_is_away_other_cycles_go_on_and_it_is_tried_again(tmp_path: Path) -> None:
    with around(tmp_path, pools=POOLS) as it:
        it.lab.clock.sleep(30)
        proposal = proposed(it)
        kept(it).approve(proposal.id, by="ann")
        it.lab.faults.set(prometheus_down="error")
        it.worker.carry_out_approved()
        assert it.parts.waiting(APPROVALS) is not None
        it.lab.faults.clear()
        it.worker.carry_out_approved()
        assert it.evicted() == []
        it.parts.worked(APPROVALS)
        it.worker.carry_out_approved()
        assert it.evicted() == [each.node for each in proposal.plan.evictions]
        assert it.parts.current() == []


def test_a_defect_refuses_the_proposal_and_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with around(tmp_path, pools=POOLS) as it:
        it.lab.clock.sleep(30)
        proposal = proposed(it)
        kept(it).approve(proposal.id, by="ann")

        def broken(*_: object, **__: object) -> None:
            raise KeyError("a mistake of ours")

        monkeypatch.setattr("rebalancer.cycle.run.confirm", broken)
        it.worker.carry_out_approved()
        after = kept(it).named(proposal.id)
        assert after is not None
        assert (after.state, "a mistake of ours" in after.reason) == (ProposalState.REFUSED, True)
        assert [each.name for each in it.parts.current()] == [APPROVALS]
        assert it.evicted() == []


def test_where_the_database_is_away_no_part_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with around(tmp_path, pools=POOLS) as it:

        def away(_: SqlProposals) -> None:
            raise ConnectError("the database is away")

        monkeypatch.setattr(SqlProposals, "approved", away)
        it.worker.carry_out_approved()
        assert it.parts.current() == []
