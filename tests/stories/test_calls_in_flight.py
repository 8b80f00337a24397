"""Eviction calls in flight together: as many as services, budgets and nodes allow, each with its own reservation."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.evict.calls import MAX_CALLS, EvictionCalls
from rebalancer.cycle.run import begin_report, execute_cycle, run_cycle
from rebalancer.lab import Scenario
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Answer, Eviction, Outcome
from rebalancer.model.decisions.limits import Check, Scope
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Evictor
from rebalancer.model.errors import ConnectError
from rebalancer.model.reason import Reason, Refusal
from tests.stories.scenarios.stage import TURN_SECONDS, Stage, a_machine, a_scenario, a_stage, burner, service

WAIT_SECONDS = 30.0
"""For what comes at once; no test measures it."""
WIDE = {
    "perCycle": 100,
    "cluster": {"inFlight": 100, "evictions": [{"max": 100, "per": "1h"}]},
    "service": {"inFlight": 10},
    "replacements": {"perNode": 10},
}


def hot_nodes(count: int, services: Callable[[int], str] = "s{:02}".format, **fields: Any) -> Scenario:
    """Each has to evict one of its two pods of a service; `services`: number of the node -> name."""
    names = [f"hot-{at:02}" for at in range(count)]
    place: dict[str, dict[str, int]] = {}
    for at, name in enumerate(names):
        place.setdefault(services(at), {})[name] = 2
    return a_scenario(
        [*map(a_machine, names), *(a_machine(f"cool-{at:02}") for at in range(count // 2 + 1))],
        *(burner(f"burner-{name}", name, 7.5) for name in names),
        *(service(name, on, cpu=2.5, **fields) for name, on in place.items()),
    )


@dataclass
class Watched:
    """In front of the real Eviction API: calls of the pool stay in flight until the planning thread waits for an
    answer, so that as many run together as may."""

    evictor: Evictor
    answers: Callable[[Eviction], Answer | None] = lambda _: None
    """Instead of a call."""
    waited_for: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: list[Eviction] = field(default_factory=list)
    begun: list[Eviction] = field(default_factory=list)
    together: list[list[Eviction]] = field(default_factory=list)
    """At the start of each call: those in flight, itself included."""

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        with self.lock:
            self.running.append(eviction)
            self.begun.append(eviction)
            self.together.append(list(self.running))
        try:
            if threading.current_thread().name.startswith("eviction"):
                assert self.waited_for.wait(WAIT_SECONDS)
            return self.answers(eviction) or self.evictor.evict(eviction, server_dry_run=server_dry_run)
        finally:
            with self.lock:
                self.running.remove(eviction)

    @property
    def most(self) -> int:
        return max(map(len, self.together))


WatchedStage = Callable[..., AbstractContextManager[tuple[Stage, Watched]]]
"""Of a cluster, and of limits in place of `WIDE`."""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedStage:
    @contextmanager
    def begin(cluster: Scenario, limits: Mapping[str, Any] = WIDE) -> Iterator[tuple[Stage, Watched]]:
        with a_stage(cluster, tmp_path, limits=limits) as stage:
            calls = Watched(stage.world.evictor)
            take = EvictionCalls.take

            def taken(self: EvictionCalls, *, wait: bool) -> Any:
                if wait:
                    calls.waited_for.set()
                try:
                    return take(self, wait=wait)
                finally:
                    calls.waited_for.clear()

            monkeypatch.setattr(EvictionCalls, "take", taken)
            stage.world = replace(stage.world, evictor=calls, max_calls=MAX_CALLS)
            stage.lab.clock.sleep(TURN_SECONDS)
            yield stage, calls

    return begin


def pods(moves: Any) -> list[tuple[str, str]]:
    return [(each.pod, each.node) for each in moves]


def refused(code: Reason = Reason.SERVER_WEBHOOK, wait: float | None = None) -> Answer:
    return Answer(outcome=Outcome.REFUSED, refusal=Refusal.of(code), retry_after_seconds=wait)


def ledger_agrees(stage: Stage) -> None:
    """What the ledger counts is what happened."""
    counted = sorted(each.uid for each in stage.ledger.open_evictions())
    assert counted == sorted(each.uid for each in stage.log.evicted)


def test_evictions_of_several_services_are_in_flight_together_as_planned(watched: WatchedStage) -> None:
    with watched(hot_nodes(20)) as (stage, calls):
        plan = run_cycle(stage.world, stage.policy, dry_run=True).report
        assert calls.begun == []
        report = stage.cycle()
        assert len(report.evictions) == 20
        assert pods(report.evictions) == pods(plan.evictions)
        assert {each.answered.outcome for each in report.evictions} == {Outcome.EVICTED}
        # one more with each that was accepted
        assert [len(each) for each in calls.together][:3] == [1, 1, 2]
        assert 2 < calls.most <= MAX_CALLS
        # reserved in the plan's order
        records = [each.reserved.record for each in report.evictions]
        assert records == sorted(records, key=lambda each: each or 0)
        ledger_agrees(stage)


@pytest.mark.parametrize("shared", ["service", "budget"])
def test_two_evictions_of_a_service_or_a_budget_are_never_in_flight_together(
    watched: WatchedStage, shared: str
) -> None:
    if shared == "service":
        cluster = hot_nodes(12, lambda at: f"s{at % 3}")
    else:
        cluster = hot_nodes(12, labels={"tier": "web"})
        first, *others = cluster.workloads[12:]
        pdb = {"max_unavailable": 100, "name": "all", "selector": {"tier": "web"}}
        budgeted = service(first.name, first.place, cpu=2.5, labels={"tier": "web"}, pdb=pdb)
        cluster = a_scenario(cluster.nodes, *cluster.workloads[:12], budgeted, *others)
    with watched(cluster) as (stage, calls):
        report = stage.cycle()
        assert len(report.evictions) == 12
        for running in calls.together:
            names = [each.service for each in running]
            assert len(names) == len(set(names))
        # how many of the three services are in flight at once depends on how fast answers come
        assert 1 < calls.most <= 3 if shared == "service" else calls.most == 1


def test_two_evictions_of_a_node_are_never_in_flight_together(watched: WatchedStage) -> None:
    names = [f"hot-{at}" for at in range(4)]
    cluster = a_scenario(
        [*map(a_machine, names), *(a_machine(f"cool-{at}") for at in range(4))],
        *(burner(f"burner-{name}", name, 7.0) for name in names),
        *(service(f"{part}-{name}", {name: 2}, cpu=1.5) for name in names for part in "ab"),
    )
    limits = {**WIDE, "node": {"evictions": [{"max": 10, "per": "1h"}], "inFlight": 10}}
    with watched(cluster, limits) as (stage, calls):
        report = stage.cycle()
        assert len(report.evictions) == 8
        assert calls.most > 1
        for running in calls.together:
            nodes = [each.node for each in running]
            assert len(nodes) == len(set(nodes))


def test_a_limit_of_replacements_in_flight_holds(watched: WatchedStage) -> None:
    with watched(hot_nodes(12), {**WIDE, "cluster": {"inFlight": 3}}) as (stage, calls):
        stage.policy = stage.policy.model_copy(
            update={"planner": stage.policy.planner.model_copy(update={"patience": 0.0})}
        )
        assert len(stage.cycle().evictions) == 3
        assert len(calls.begun) == 3
        ledger_agrees(stage)


def test_retry_after_stops_new_calls_until_it_ends_and_nothing_else(watched: WatchedStage) -> None:
    with watched(hot_nodes(16)) as (stage, calls):
        begun_at: list[float] = []
        throttled: list[Eviction] = []

        def answers(eviction: Eviction) -> Answer | None:
            begun_at.append(stage.lab.clock.now())
            if len(begun_at) == 6:
                throttled.append(eviction)
                return refused(Reason.SERVER_THROTTLED, wait=20.0)
            return None

        calls.answers = answers
        at = stage.lab.clock.now()
        report = stage.cycle()
        assert report.interrupted is None
        # those that were in flight then have ended, the others began after the time that the server asked for
        before = [each for each in begun_at if each < at + 20]
        assert 6 <= len(before) <= 6 + MAX_CALLS
        assert len(begun_at) == 17
        # the refused one was reserved and called again
        (first,) = throttled
        assert [each.answered.outcome for each in report.evictions if each.uid == first.uid] == [
            Outcome.REFUSED,
            Outcome.EVICTED,
        ]
        assert len({each.reserved.record for each in report.evictions}) == 17
        ledger_agrees(stage)


def test_a_server_that_goes_on_throttling_ends_the_plan(watched: WatchedStage) -> None:
    with watched(hot_nodes(4)) as (stage, calls):
        calls.answers = lambda _: refused(Reason.SERVER_THROTTLED, wait=1.0)
        report = stage.cycle()
        assert report.interrupted is not None
        assert report.interrupted.code is Reason.SERVER_THROTTLED
        assert len(calls.begun) == 3
        ledger_agrees(stage)


def test_a_retry_after_that_is_longer_than_the_longest_wait_ends_the_plan(watched: WatchedStage) -> None:
    with watched(hot_nodes(4)) as (stage, calls):
        longest = stage.policy.safety.max_wait
        calls.answers = lambda _: refused(Reason.SERVER_THROTTLED, wait=longest + 1.0)
        at = stage.lab.clock.now()
        report = stage.cycle()
        assert report.interrupted is not None
        assert report.interrupted.code is Reason.SERVER_THROTTLED
        assert len(calls.begun) == 1
        assert stage.lab.clock.now() - at < longest
        ledger_agrees(stage)


@pytest.mark.parametrize("at", [3, 6, 9, 12])
def test_a_refusal_is_undone_although_later_moves_are_under_way(watched: WatchedStage, at: int) -> None:
    with watched(hot_nodes(12)) as (stage, calls):
        lost: list[Eviction] = []

        def answers(eviction: Eviction) -> Answer | None:
            if not lost and len(calls.begun) >= at:
                lost.append(eviction)
                return refused(Reason.SERVER_BUDGET)
            return None

        calls.answers = answers
        report = stage.cycle()
        (first,) = lost
        happened = [each for each in report.evictions if each.answered.outcome is Outcome.EVICTED]
        # each other node was relieved; the refused pod has its reason
        assert {each.node for each in happened} >= {f"hot-{at:02}" for at in range(12)} - {first.node}
        assert [each.code for each in report.refusals if each.name == first.pod] == [Reason.SERVER_BUDGET]
        assert len({each.uid for each in report.evictions}) == len(report.evictions)
        ledger_agrees(stage)
        # its load is still on its node in what the report says of the plan
        line = next(each for each in report.nodes if each.name == first.node)
        relieved = first.node in {each.node for each in happened}
        assert line.cpu_before is not None
        assert line.cpu_planned is not None
        assert (line.cpu_planned < line.cpu_before - 0.1) == relieved


def test_a_refused_move_makes_room_for_the_next_best(watched: WatchedStage) -> None:
    """Its limit is free again, and its node's other service takes its turn."""
    names = [f"hot-{at}" for at in range(6)]
    cluster = a_scenario(
        [*map(a_machine, names), *(a_machine(f"cool-{at}") for at in range(4))],
        *(burner(f"burner-{name}", name, 7.3) for name in names),
        *(service(f"{part}-{name}", {name: 2}, cpu=cpu) for name in names for part, cpu in (("a", 2.4), ("b", 0.2))),
        service("spare", {"hot-5": 2}, cpu=2.5),
    )
    with watched(cluster) as (stage, calls):
        calls.answers = lambda each: refused() if each.service.name.startswith("spare") else None
        report = stage.cycle()
        gone = [each for each in report.evictions if each.answered.outcome is Outcome.EVICTED]
        assert {each.node for each in gone} == set(names)
        assert [each.service.name for each in report.evictions if each.answered.outcome in DID_NOT_HAPPEN] == ["spare"]
        ledger_agrees(stage)


def test_an_error_in_the_middle_leaves_no_call_unrecorded(
    watched: WatchedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(hot_nodes(16)) as (stage, calls):
        ledger = stage.ledger
        reserve, reserved = ledger.reserve_all, list[Eviction]()

        def fails(report: CycleReport, evictions: Any, **given: Any) -> Any:
            if len(reserved) >= 9:
                calls.waited_for.set()
                raise ConnectError("the database is away")
            reserved.extend(eviction for eviction, _ in evictions)
            return reserve(report, evictions, **given)

        monkeypatch.setattr(ledger, "reserve_all", fails)
        report = begin_report(stage.world, stage.policy, dry_run=False)
        with pytest.raises(ConnectError, match="away"):
            execute_cycle(stage.world, stage.policy, report)
        assert len(calls.begun) == len(reserved)
        assert 9 <= len(reserved) < 16
        assert calls.most > 1
        assert {each.answered.outcome for each in report.evictions} == {Outcome.EVICTED}
        ledger_agrees(stage)
        assert {each.answered.outcome for each in ledger.open_evictions()} == {Outcome.EVICTED}


@pytest.mark.parametrize("why", ["stopping", "lease"])
def test_no_call_starts_once_the_process_stops_or_the_lease_is_lost(watched: WatchedStage, why: str) -> None:
    with watched(hot_nodes(16)) as (stage, calls):
        ended = threading.Event()

        def answers(_: Eviction) -> Answer | None:
            if len(calls.begun) >= 6:
                ended.set()
            return None

        calls.answers = answers
        if why == "stopping":
            stage.world = replace(stage.world, stopping=ended.is_set)
        else:
            assert stage.world.lease is not None
            stage.world = replace(stage.world, lease=Ending(stage.world.lease, ended))
        report: CycleReport = stage.cycle()
        assert report.interrupted is not None
        assert 6 <= len(calls.begun) < 16
        assert {each.answered.outcome for each in report.evictions} == {Outcome.EVICTED}
        ledger_agrees(stage)


@dataclass
class Ending:
    """A lease that is lost."""

    lease: Any
    ended: threading.Event

    @property
    def term(self) -> int | None:
        return self.lease.term  # type: ignore[no-any-return]

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return not self.ended.is_set() and self.lease.holds(margin_seconds)


def test_an_answer_that_is_lost_is_followed_by_one_call_at_a_time(watched: WatchedStage) -> None:
    with watched(hot_nodes(16)) as (stage, calls):
        unknown = Answer(outcome=Outcome.UNKNOWN, refusal=Refusal.of(Reason.SERVER_UNKNOWN))
        calls.answers = lambda _: unknown if len(calls.begun) >= 5 else None
        report = stage.cycle()
        assert len(report.evictions) == 16
        assert calls.most <= 5
        assert [len(each) for each in calls.together[-6:]] == [1] * 6
        # unknown stays counted
        assert len(stage.ledger.open_evictions()) == 16


def test_moves_are_reserved_together_and_one_that_the_ledger_denies_takes_nothing_from_the_others(
    watched: WatchedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(hot_nodes(16)) as (stage, calls):
        ledger = stage.ledger
        reserve, batches, denied = ledger.reserve_all, list[int](), list[Eviction]()

        def denies(report: CycleReport, evictions: Any, **given: Any) -> Any:
            """Another cluster has used up a limit of the second one's."""
            batches.append(len(evictions))
            if len(evictions) > 2 and not denied:
                denied.append(evictions[1][0])
                check = Check(scope=Scope("global", ""), kind="inFlight", at_most=0)
                evictions = [(each, [check] if each is denied[0] else checks) for each, checks in evictions]
            return reserve(report, evictions, **given)

        monkeypatch.setattr(ledger, "reserve_all", denies)
        report = stage.cycle()
        assert max(batches) == MAX_CALLS // 2
        (one,) = denied
        assert one.uid not in {each.uid for each in calls.begun}
        assert {each.node for each in report.evictions} >= {f"hot-{at:02}" for at in range(16)} - {one.node}
        assert {each.answered.outcome for each in report.evictions} == {Outcome.EVICTED}
        assert Reason.LIMIT_GLOBAL in {each.code for each in report.refusals if each.name == one.pod}
        ledger_agrees(stage)
