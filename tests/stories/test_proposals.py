"""Pools and strategies in `mode: Approve`: what a cycle proposes, keeps and supersedes."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.store import SqlProposals
from tests.stories.scenarios.stage import Stage, a_stage
from tests.stories.test_modes import LIMITS, STRATEGIES, a_run, by_pool, pools, two_pools

PROPOSED, SUPERSEDED, EXPIRED = ProposalState.PROPOSED, ProposalState.SUPERSEDED, ProposalState.EXPIRED


def kept(stage: Stage) -> SqlProposals:
    found = stage.world.proposals
    assert isinstance(found, SqlProposals)
    return found


def states(stage: Stage) -> dict[str, ProposalState]:
    return {each.id: each.state for each in kept(stage).all()}


def uids(proposal: Proposal) -> list[str]:
    return [each.uid for each in proposal.plan.evictions]


def only(report: CycleReport) -> Proposal:
    [proposal] = report.proposals
    return proposal


def test_what_needs_an_approval_is_proposed_and_the_others_act(tmp_path: Path) -> None:
    with a_run(tmp_path, b="Approve") as stage:
        report = stage.cycle()
        real, planned = by_pool(report, dry_run=False), by_pool(report, dry_run=True)
        assert (set(real), set(planned)) == ({"a"}, {"b"})
        assert {each.uid for each in stage.log.evicted} == set(real["a"])
        assert {each.answered.detail for each in report.evictions} == {"", "approval needed: pool b"}
        proposal = only(report)
        assert (proposal.plan.pool, proposal.plan.strategy) == ("b", "LowNodeUtilization")
        assert (proposal.state, proposal.cycle) == (PROPOSED, report.id)
        assert uids(proposal) == planned["b"]
        shown = {each.uid: [one.node for one in each.target_nodes] for each in proposal.plan.evictions}
        assert shown == {
            each.uid: [one.node for one in each.target_nodes] for each in report.evictions if each.pool == "b"
        }
        assert kept(stage).all() == [proposal] == [kept(stage).named(proposal.id)]


def test_the_same_plan_keeps_its_proposal_until_it_expires(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        first = only(stage.cycle())
        again = only(stage.turn())
        assert (again.id, again.expires_at) == (first.id, first.expires_at)
        assert first.expires_at - first.proposed_at == pytest.approx(1800.0)
        new = only(stage.turn(1801.0))
        assert uids(new) == uids(first)
        assert states(stage) == {new.id: PROPOSED, first.id: EXPIRED}
        assert stage.log.evicted == []


def test_another_plan_supersedes_the_proposal(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve") as stage:
        first = only(stage.cycle())
        gone = first.plan.evictions[0]
        stage.lab.cluster.store.remove("pods", gone.namespace, gone.pod)
        new = only(stage.turn(300.0))
        assert gone.uid not in uids(new)
        assert states(stage) == {new.id: PROPOSED, first.id: SUPERSEDED}
        before = kept(stage).named(first.id)
        assert before is not None
        assert before.reason == f"superseded by {new.id}"


def test_another_policy_supersedes_the_proposal(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve") as stage:
        first = only(stage.cycle())
        stage.policy = stage.policy.model_copy(
            update={"approval": stage.policy.approval.model_copy(update={"expire_after": 60.0})}
        )
        new = only(stage.turn())
        assert states(stage) == {new.id: PROPOSED, first.id: SUPERSEDED}
        assert new.expires_at - new.proposed_at == pytest.approx(60.0)


def test_a_cycle_of_one_node_keeps_the_proposal_of_the_pool(tmp_path: Path) -> None:
    strategies = ({**STRATEGIES[1], "mode": "Approve"}, {**STRATEGIES[0], "mode": "DryRun"})
    with a_run(tmp_path, strategies=strategies) as stage:
        by_pool_of = {each.plan.pool: each for each in stage.cycle().proposals}
        assert {name: len(each.plan.evictions) for name, each in by_pool_of.items()} == {"a": 2, "b": 2}
        scope = RequestScope(strategy="PodLifeTime", nodes=frozenset({"a3"}))
        request = CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({scope}))
        report = run_cycle(stage.world, stage.policy, request=request, dry_run=False).report
        assert len(report.evictions) == 1
        assert only(report).id == by_pool_of["a"].id
        assert set(states(stage).values()) == {PROPOSED}


@pytest.mark.parametrize("server_dry_run", [False, True])
def test_a_dry_run_of_the_command_proposes_nothing(server_dry_run: bool, tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve") as stage:
        report = run_cycle(stage.world, stage.policy, dry_run=True, server_dry_run=server_dry_run).report
        assert report.evictions
        assert report.proposals == kept(stage).all() == []


def test_a_proposal_takes_no_limit_from_a_real_eviction_and_a_dry_run_none_from_a_proposal(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"limits": {**LIMITS, "perCycle": 3}, "planner": {"patience": "0s"}}

    def made(folder: str, **modes: str) -> tuple[int, int, int]:
        stages = a_stage(two_pools(), tmp_path / folder, pools=pools(**modes), strategies=[*STRATEGIES[:1]], **sections)
        with stages as stage:
            stage.lab.clock.sleep(300.0)
            report = stage.cycle()
            proposed = [uid for each in report.proposals for uid in uids(each)]
            return len(stage.log.evicted), len(proposed), len(report.evictions)

    assert made("act", a="Approve") == (3, 0, 3)
    assert made("approve", a="DryRun", b="Approve") == (0, 3, 3)
