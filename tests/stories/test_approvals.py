"""Approved proposals: exactly their evictions are made, once, or none, and what has changed is named."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rebalancer.cycle.proposals import carry_out
from rebalancer.cycle.run import begin_report
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.model.errors import ConnectError, UnsafeDataError
from tests.stories.readers import cordoned
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, service
from tests.stories.test_modes import LIMITS, POOLS, STRATEGIES, a_run, pools
from tests.stories.test_modes_of_drains import KEY, VALUE
from tests.stories.test_proposals import kept, only, uids

CARRIED_OUT, REFUSED, EXPIRED = ProposalState.CARRIED_OUT, ProposalState.REFUSED, ProposalState.EXPIRED


def run_approved(stage: Stage) -> list[CycleReport]:
    """What the worker does of what is approved."""
    reports = []
    for each in kept(stage).approved():
        report = begin_report(stage.world, stage.policy, trigger=Trigger.APPROVAL, dry_run=False, cycle=each.run)
        carry_out(stage.world, kept(stage), stage.policy, each, report)
        reports.append(report)
    return reports


def end_of(stage: Stage, proposal: Proposal) -> Proposal:
    found = kept(stage).named(proposal.id)
    assert found is not None
    return found


def evicted(stage: Stage) -> list[str]:
    return [each.uid for each in stage.log.evicted]


def test_exactly_what_was_approved_is_evicted_once(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="Approve") as stage:
        first, second = stage.cycle().proposals
        approved = kept(stage).approve(second.id, by="ann")
        assert (approved.state, approved.decided_by) == (ProposalState.APPROVED, "ann")
        [report] = run_approved(stage)
        assert evicted(stage) == uids(second)
        assert (report.id, report.trigger, report.dry_run) == (second.run, Trigger.APPROVAL, False)
        assert all(not each.reserved.dry_run for each in report.evictions)
        assert {each.uid for each in stage.ledger.open_evictions()} == set(uids(second))
        assert (end_of(stage, second).state, end_of(stage, second).reason) == (CARRIED_OUT, "")
        assert end_of(stage, first).state is ProposalState.PROPOSED
        assert run_approved(stage) == []
        with pytest.raises(UnsafeDataError, match="it was carried out"):
            kept(stage).approve(second.id, by="ann")
        assert evicted(stage) == uids(second)


def removed(stage: Stage, plan: Proposal) -> str:
    move = plan.plan.evictions[-1]
    stage.lab.cluster.store.remove("pods", move.namespace, move.pod)
    return f"{move.full_name} is gone"


def vetoed(stage: Stage, plan: Proposal) -> str:
    store, move = stage.lab.cluster.store, plan.plan.evictions[-1]
    pod = store.get("pods", move.namespace, move.pod)
    store.change("pods", pod, lambda each: each["metadata"]["labels"].update({"rebalancer.dev/evict": "false"}))
    return f"{move.full_name} on {move.node}: "


def budgeted(stage: Stage, plan: Proposal) -> str:
    store, move = stage.lab.cluster.store, plan.plan.evictions[0]
    selector = {"matchLabels": dict(store.get("pods", move.namespace, move.pod)["metadata"]["labels"])}
    spec = {"maxUnavailable": 0, "selector": selector}
    store.create("poddisruptionbudgets", {"metadata": {"name": "none", "namespace": move.namespace}, "spec": spec})
    return "PodDisruptionBudget"


def closed(stage: Stage, plan: Proposal) -> str:
    store, hot = stage.lab.cluster.store, {each.node for each in plan.plan.evictions}
    for node in list(store.all("nodes")):
        if node["metadata"]["name"] not in hot:
            store.change("nodes", node, lambda each: each["spec"].update(unschedulable=True))
    return plan.plan.evictions[0].full_name


def elsewhere(stage: Stage, plan: Proposal) -> str:
    """The nodes that the proposal shows are closed, and others are not."""
    store, shown = stage.lab.cluster.store, {one.node for each in plan.plan.evictions for one in each.target_nodes}
    for node in list(store.all("nodes")):
        if node["metadata"]["name"] in shown:
            store.change("nodes", node, lambda each: each["spec"].update(unschedulable=True))
    return plan.plan.evictions[0].full_name


def another_policy(stage: Stage, plan: Proposal) -> str:
    cluster = stage.policy.planner.model_copy(update={"patience": 1.0})
    stage.policy = stage.policy.model_copy(update={"planner": cluster})
    return "the policy has changed since it was made"


CHANGES: list[Callable[[Stage, Proposal], str]] = [removed, vetoed, budgeted, closed, elsewhere, another_policy]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_world_refuses_all_of_it_and_is_named(change: Callable[..., str], tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        named = change(stage, proposal)
        run_approved(stage)
        assert evicted(stage) == []
        after = end_of(stage, proposal)
        assert after.state is REFUSED
        assert named in after.reason
        assert run_approved(stage) == []


def test_what_another_strategy_wants_is_not_what_was_approved(tmp_path: Path) -> None:
    strategies = ({**STRATEGIES[1], "mode": "Approve"}, {**STRATEGIES[0], "mode": "Approve"})
    with a_run(tmp_path, strategies=strategies) as stage:
        proposals = {(each.plan.pool, each.plan.strategy): each for each in stage.cycle().proposals}
        assert len(proposals) == 4
        chosen = proposals["a", "PodLifeTime"]
        kept(stage).approve(chosen.id, by="ann")
        [report] = run_approved(stage)
        assert evicted(stage) == uids(chosen)
        assert {each.strategy for each in report.evictions} == {"PodLifeTime"}


def test_a_rejected_plan_is_not_proposed_again_before_it_would_have_expired(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        kept(stage).reject(proposal.id, by="bob", reason="a release")
        assert run_approved(stage) == []
        assert (end_of(stage, proposal).state, end_of(stage, proposal).reason) == (ProposalState.REJECTED, "a release")
        assert stage.turn().proposals == []
        with pytest.raises(UnsafeDataError, match=r"it was rejected by bob at .*: a release"):
            kept(stage).approve(proposal.id, by="ann")
        assert only(stage.turn(1800.0)).id != proposal.id
        assert evicted(stage) == []


@pytest.mark.parametrize("fault", [{"prometheus_down": "error"}, {"partial": "a store is away"}])
def test_where_the_metrics_are_away_it_stays_approved_until_it_expires(fault: dict[str, str], tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        stage.lab.faults.set(**fault)
        with pytest.raises((ConnectError, UnsafeDataError)):
            run_approved(stage)
        assert end_of(stage, proposal).state is ProposalState.APPROVED
        stage.lab.clock.sleep(1800.0)
        stage.lab.faults.clear()
        assert run_approved(stage) == []
        assert end_of(stage, proposal).state is EXPIRED
        assert evicted(stage) == []


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Kept:
    """Proposals of a process that is killed before or after a step."""

    def __init__(self, proposals: Any, step: str, *, after: bool) -> None:
        self._proposals, self._step, self._after = proposals, step, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._proposals, name)
        if name != self._step:
            return real

        def killed(*arguments: Any, **values: Any) -> Any:
            if self._after:
                real(*arguments, **values)
            raise Killed

        return killed


@pytest.mark.parametrize(
    ("step", "after", "made"),
    [("begin", False, True), ("begin", True, False), ("close", False, True), ("close", True, True)],
)
def test_one_whose_process_is_killed_is_carried_out_at_most_once(
    step: str, after: bool, made: bool, tmp_path: Path
) -> None:
    """Before it began, the next leader carries it out. Later it is over, and its cycle says what was made."""
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        dying = Kept(kept(stage), step, after=after)
        report = begin_report(stage.world, stage.policy, dry_run=False, cycle=proposal.run)
        with pytest.raises(Killed):
            carry_out(stage.world, dying, stage.policy, proposal, report)
        for _ in range(3):
            run_approved(stage)
        assert evicted(stage) == (uids(proposal) if made else [])
        end = end_of(stage, proposal)
        assert end.state is (CARRIED_OUT if made else REFUSED)
        assert made or end.reason == "its process ended before the first eviction"


def test_of_two_processes_one_carries_it_out(tmp_path: Path) -> None:
    """A leader that is no leader any more comes late."""
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        [seen_by_both] = kept(stage).approved()
        run_approved(stage)
        again = begin_report(stage.world, stage.policy, dry_run=False, cycle=seen_by_both.run)
        carry_out(stage.world, kept(stage), stage.policy, seen_by_both, again)
        assert evicted(stage) == uids(proposal)
        assert again.evictions == []
        assert end_of(stage, proposal).state is CARRIED_OUT


class Twice:
    """Cycles that no database has seen: the row of the proposal alone stops a second use."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def begun(self, cycle: str) -> float | None:
        return None


def test_the_row_alone_stops_a_second_use(tmp_path: Path) -> None:
    with a_run(tmp_path, a="Approve", b="DryRun") as stage:
        proposal = only(stage.cycle())
        kept(stage).approve(proposal.id, by="ann")
        kept(stage).reject(proposal.id, by="bob")
        world = replace(stage.world, records=Twice(stage.world.records))
        report = begin_report(world, stage.policy, dry_run=False, cycle=proposal.run)
        carry_out(world, kept(stage), stage.policy, proposal, report)
        assert evicted(stage) == report.evictions == []
        assert end_of(stage, proposal).state is ProposalState.REJECTED


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_only_approved_evictions_are_made(seed: int, tmp_path: Path) -> None:
    """Random cycles, decisions, changes and deaths: what is evicted was in a proposal that was approved, and each
    proposal is carried out at most once."""
    random, allowed = Random(seed), set[str]()
    strategies = tuple({**each, "mode": "Approve"} for each in STRATEGIES)
    with a_run(tmp_path, strategies=strategies) as stage:
        for _ in range(70):
            found = kept(stage).all()
            match random.randrange(8):
                case 0 | 1:
                    stage.turn(random.choice((30.0, 150.0)))
                case 2:
                    stage.lab.clock.sleep(random.choice((10.0, 2000.0)))
                case 3 | 4 if found:
                    chosen = random.choice(found[:6])
                    allowed |= approved_of(stage, chosen)
                case 5 if found:
                    rejected = random.choice(found).id
                    decided(partial(kept(stage).reject, rejected, by="bob"))
                case 6:
                    pods = [each for each in stage.lab.cluster.pods() if each["metadata"]["namespace"] == "shop"]
                    gone = random.choice(pods)["metadata"]
                    stage.lab.cluster.store.remove("pods", gone["namespace"], gone["name"])
                case _:
                    dying = Kept(kept(stage), random.choice(("begin", "close")), after=random.random() < 0.5)
                    for each in kept(stage).approved()[:1]:
                        report = begin_report(stage.world, stage.policy, dry_run=False, cycle=each.run)
                        with suppress(Killed):
                            carry_out(stage.world, dying, stage.policy, each, report)
            if random.random() < 0.4:
                run_approved(stage)
            assert set(evicted(stage)) <= allowed
            assert len(set(evicted(stage))) == len(evicted(stage))
        assert evicted(stage)


def decided(decide: Callable[[], Proposal]) -> bool:
    try:
        decide()
    except UnsafeDataError:
        return False
    return True


def approved_of(stage: Stage, proposal: Proposal) -> set[str]:
    done = decided(lambda: kept(stage).approve(proposal.id, by="ann"))
    assert done == (proposal.state is ProposalState.PROPOSED)
    return set(uids(proposal)) if done else set()


@pytest.mark.parametrize(("of_b", "drained"), [("Act", {"b1"}), ("Approve", set())])
def test_what_other_parts_have_cordoned_stays_so_and_nothing_else_is(
    of_b: str, drained: set[str], tmp_path: Path
) -> None:
    """In the second pool a node is to be maintained, at once or after an approval."""
    names = {f"{pool}{number}": pool for pool in POOLS for number in (1, 2, 3)}
    machines = [
        a_machine(name, labels={"pool": pool}, annotations={KEY: VALUE} if name == "b1" else {})
        for name, pool in names.items()
    ]
    scenario = a_scenario(
        machines,
        burner("heat-a", "a1", 9.0),
        service("web-a", {"a1": 6, "a2": 1}, node_selector={"pool": "a"}),
        service("web-b", {"b1": 2, "b2": 1}, node_selector={"pool": "b"}),
    )
    maintenance = {"name": "NodeMaintenance", "args": {"annotation": f"{KEY}={VALUE}"}, "pools": ["b"]}
    sections = {"limits": LIMITS, "planner": {"patience": "0s"}, "strategies": [*STRATEGIES[:1], maintenance]}
    with a_stage(scenario, tmp_path, pools=pools(a="Approve", b=of_b), **sections) as stage:
        stage.lab.clock.sleep(300.0)
        proposal = next(each for each in stage.cycle().proposals if each.plan.pool == "a")
        assert ({each.node for each in stage.log.evicted}, cordoned(stage.lab)) == (drained, drained)
        kept(stage).approve(proposal.id, by="ann")
        [report] = run_approved(stage)
        assert {each.node for each in report.evictions} == {"a1"}
        assert (cordoned(stage.lab), len(stage.log.cordons)) == (drained, len(drained))
        stage.turns(2)
        assert cordoned(stage.lab) == drained
