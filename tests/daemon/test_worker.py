"""The worker: requests and alerts become cycles, and none is lost when something is away.

The cluster is the lab over HTTP, the database a real file, time the lab's; what the daemon around the worker would do
is played by the test.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.isolation import failed_parts
from rebalancer.cycle.triggers.alert_requests import ActionableEpisode, with_alerts
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.daemon.threads import worker as worker_module
from rebalancer.daemon.threads.worker import SHORTEST_NAP_SECONDS, Worker
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, Received, ThresholdOverride
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.ports import Inbox
from rebalancer.model.errors import ConnectError
from rebalancer.model.parts import FailedParts, VitalError
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import SqlLedger, open_records
from tests.e2e.servers import ALERT, alert_policy

START = 1_790_000_000.0
WARM = ("warm-1", "warm-2", "warm-3")


@dataclass
class Around:
    """The rest of the daemon."""

    lab: Lab
    worker: Worker
    queue: TriggerQueue
    inbox: Inbox
    state: Callable[[str], tuple[str, str]]
    leads: list[bool] = field(default_factory=lambda: [True])
    """Answers to `leads`, the last one for ever."""
    stopping: list[bool] = field(default_factory=lambda: [False])
    reports: list[CycleReport] = field(default_factory=list)
    failures: list[tuple[Trigger, str]] = field(default_factory=list)
    parts: FailedParts = field(default_factory=failed_parts)

    def alert(self, name: str, high: float | None = 60.0, fingerprint: str = "") -> None:
        marks = {} if high is None else {"rebalancer_high": f"{high:g}", "rebalancer_target": f"{high - 10:g}"}
        alert = Alert(
            fingerprint=fingerprint or f"{name} {high}",
            firing=True,
            labels={"alertname": ALERT, "node": name},
            annotations=marks,
            starts_at=self.lab.clock.now(),
        )
        self.inbox.receive([alert], max_age_seconds=3600)

    def work(self, request: CycleRequest | None = None) -> CycleReport:
        """What a cycle that there is a reason for does."""
        report = self.worker.work(request)
        assert report is not None
        return report

    def evicted(self) -> list[str]:
        return [each.node for each in self.lab.log.evictions(code=201)]

    def waiting(self) -> CycleRequest | None:
        return self.queue.take(0.0, monotonic=time.monotonic)


def next_of(answers: list[bool]) -> bool:
    return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def around(
    folder: Path,
    *,
    dry_run: bool = False,
    wrap_inbox: Any = None,
    wrap_records: Any = None,
    practice: Any = None,
    **sections: Any,
) -> Iterator[Around]:
    """`practice` is another scenario of the lab; `sections` replace sections of the policy."""
    nodes = [node(name, cpu=8, overhead_cores=0.3) for name in (*WARM, "cold-1", "cold-2")]
    services = [
        workload(f"svc-{name}", namespace="shop", place={name: 3}, cpu=1.65, cpu_request="500m", memory_request="256Mi")
        for name in WARM
    ]
    with Lab.start(practice or scenario(nodes=nodes, workloads=services), stepped=True, start_time=START) as lab:
        policy = RebalancerPolicy.model_validate(alert_policy(lab.prometheus_url, **sections))
        settings = Settings(
            database=f"sqlite:///{folder / 'db'}", kubeconfig=str(lab.write_kubeconfig(folder / "config"))
        )
        with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock, dry_run=dry_run) as world:
            records = open_records(url=settings.database, cluster=policy.cluster, clock=lab.clock)
            inbox = records.inbox(clock=lab.clock)
            queue = TriggerQueue()
            made: Around
            parts = failed_parts()

            def episodes(name: str) -> tuple[str, str]:
                lab.clock.sleep(3600)
                found = {each.alert.labels["node"]: each for each in inbox.due(expire_after_seconds=1e9)}
                return (EpisodeState.OPEN, found[name].reason) if name in found else ("over", "")

            worker = Worker(
                queue=queue,
                inbox=wrap_inbox(inbox) if wrap_inbox else inbox,
                active=lambda: Active(
                    policy=policy,
                    context=replace(world, records=wrap_records(world.records)) if wrap_records else world,
                ),
                leads=lambda: next_of(made.leads),
                begin_term=lambda: None,
                leading=lambda: nullcontext(next_of(made.leads)),
                stopping=lambda: next_of(made.stopping),
                done=lambda report, _: made.reports.append(report),
                failed=lambda trigger, why: made.failures.append((trigger, why)),
                parts=parts,
                dry_run=dry_run,
            )
            made = Around(lab=lab, worker=worker, queue=queue, inbox=inbox, state=episodes, parts=parts)
            try:
                yield made
            finally:
                records.close()


def for_node(name: str, trigger: Trigger = Trigger.MANUAL) -> CycleRequest:
    return CycleRequest(trigger=trigger, scopes=frozenset({RequestScope(nodes=frozenset({name}))}))


def test_nothing_is_done_without_a_request(it: Around) -> None:
    assert it.worker.work(None) is None
    assert (it.reports, it.failures) == ([], [])


def test_an_alert_moves_a_pod_off_its_node_and_off_no_other(it: Around) -> None:
    it.alert("warm-2")
    report = it.work()
    assert report.trigger is Trigger.ALERT
    assert it.evicted() == ["warm-2"]
    assert [name for _, name in report.findings] == ["warm-2"]


def test_a_request_and_the_alerts_that_are_due_are_one_cycle(it: Around) -> None:
    it.alert("warm-1")
    report = it.work(CycleRequest(trigger=Trigger.FORECAST))
    assert report.trigger is Trigger.ALERT
    assert it.evicted() == ["warm-1"]  # by the pool's own high the others are not hot
    assert len(it.reports) == 1


def test_an_alert_goes_past_a_periodic_request_once(it: Around) -> None:
    periodic = CycleRequest(trigger=Trigger.PERIODIC)
    it.alert("warm-1")
    first = it.work(periodic)
    assert (first.trigger, it.evicted()) == (Trigger.ALERT, ["warm-1"])
    assert [name for _, name in first.findings] == ["warm-1"]
    assert it.waiting() == periodic
    # the next alert shares the cycle, so that periodic work is never put off for good
    it.alert("warm-2")
    it.work(periodic)
    assert it.evicted() == ["warm-1", "warm-2"]
    assert it.waiting() is None


def test_an_alert_that_was_looked_at_is_not_looked_at_again_at_once(it: Around) -> None:
    it.alert("warm-1")
    assert it.worker.work(None) is not None
    assert it.worker.work(None) is None


def test_what_came_of_an_alert_stands_in_its_episode(it: Around) -> None:
    it.alert("warm-1")
    it.alert("warm-2", high=70.0)
    it.alert("cold-9")
    it.worker.work(None)
    assert it.state("warm-1") == ("open", "1 evicted")
    assert it.state("warm-2") == ("open", "measured 65.6%, not above the alert's 70%: nothing is evicted")
    assert it.state("cold-9") == ("open", "no node of this cluster is cold-9")
    assert it.evicted() == ["warm-1"]


def test_an_alert_that_says_too_little_is_closed_and_sets_off_nothing(it: Around) -> None:
    it.alert("warm-1", high=40.0)  # below alerts.minHigh
    assert it.worker.work(None) is None
    assert it.state("warm-1")[0] == "over"


def test_of_two_alerts_for_one_node_the_one_that_calls_it_hot_earlier_counts(it: Around) -> None:
    it.alert("warm-1", high=80.0)
    it.alert("warm-1", high=60.0)
    report = it.work()
    assert [(finding.high, finding.target) for finding, _ in report.findings] == [(0.6, 0.5)]


def test_without_alerts_the_request_stays_as_it_is() -> None:
    asked = for_node("warm-1")
    assert with_alerts(asked, []) is asked
    assert with_alerts(None, []) is None


def test_alerts_for_many_nodes_are_one_scope() -> None:
    alerted = [
        ActionableEpisode(
            episode=AlertEpisode(id=number, alert=an_alert(number), received_at=START, next_at=START),
            node=f"n{number}",
            strategy="LowNodeUtilization",
            override=ThresholdOverride(
                node=f"n{number}", strategy="LowNodeUtilization", high=0.6, target=0.5, source="alert"
            ),
        )
        for number in range(500)
    ]
    asked = with_alerts(None, alerted)
    assert asked is not None
    [scope] = asked.scopes
    assert scope.nodes == {f"n{number}" for number in range(500)}
    assert asked.nodes_for("LowNodeUtilization", {"n1": "all", "other": "all"}) == {"n1"}


def an_alert(number: int) -> Alert:
    return Alert(fingerprint=f"f{number}", firing=True, labels={}, starts_at=START)


def test_a_dry_run_evicts_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    with around(tmp_path, dry_run=True) as it:
        it.alert("warm-1")
        report = it.work()
        assert [each.answered.outcome for each in report.evictions] == [Outcome.PLANNED]
        assert it.evicted() == []
        assert it.state("warm-1") == ("open", "1 would be evicted (dry run)")


def test_a_request_is_asked_for_again_when_nothing_could_be_observed(it: Around) -> None:
    it.alert("warm-1")
    it.lab.faults.set(prometheus_down="error")
    with pytest.raises(ConnectError):
        it.worker.work(for_node("warm-2"))
    assert it.evicted() == []
    again = it.waiting()
    assert again == for_node("warm-2")  # the alert is in the inbox: it needs no second record
    it.lab.faults.clear()
    it.work(again)
    assert it.evicted() == ["warm-1"]
    assert [each.finished_at is None for each in it.reports] == [True, False]


class Away:
    """A database that is away for the first question."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.away = True

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float) -> Received:
        return self._inbox.receive(alerts, max_age_seconds=max_age_seconds)

    def due(self, *, expire_after_seconds: float) -> Sequence[AlertEpisode]:
        if self.away:
            self.away = False
            raise ConnectError("the database is away")
        return self._inbox.due(expire_after_seconds=expire_after_seconds)

    def next_at(self) -> float | None:
        return self._inbox.next_at()

    def tried(self, episode: AlertEpisode, *, reason: str, next_at: float) -> None:
        self._inbox.tried(episode, reason=reason, next_at=next_at)

    def close(self, episode: AlertEpisode, *, state: EpisodeState, reason: str) -> None:
        self._inbox.close(episode, state=state, reason=reason)


def test_a_request_outlives_a_database_that_is_away_when_it_is_taken(tmp_path: Path) -> None:
    with around(tmp_path, wrap_inbox=Away) as it:
        with pytest.raises(ConnectError):
            it.worker.work(for_node("warm-2"))
        assert it.failures == [(Trigger.MANUAL, "the database is away")]
        assert it.waiting() == for_node("warm-2")


class FailsAtTheEnd:
    """Records that can't be finished."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def finish(self, report: CycleReport) -> None:
        raise ConnectError("the database is away")


def test_evictions_of_a_cycle_that_ends_in_an_error_are_reported_all_the_same(tmp_path: Path) -> None:
    with around(tmp_path, wrap_records=FailsAtTheEnd) as it:
        it.alert("warm-1")
        with pytest.raises(ConnectError):
            it.worker.work(None)
        assert [(each.node, each.answered.outcome) for each in it.reports[0].evictions] == [("warm-1", Outcome.EVICTED)]
        assert it.failures == []  # reported once


def test_a_request_that_is_taken_when_we_lead_no_more_is_not_lost(it: Around) -> None:
    it.queue.put(for_node("warm-1"))
    it.leads[:] = [True, False]
    it.stopping[:] = [False, True]
    it.worker.run()
    assert it.waiting() == for_node("warm-1")
    assert it.reports == []


def test_nothing_is_begun_once_we_stop(it: Around) -> None:
    it.alert("warm-1")
    it.stopping[:] = [True]
    assert it.worker.work(for_node("warm-1")) is None
    it.worker.run()
    assert it.evicted() == []


class Patience(TriggerQueue):
    """Remembers how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def take(self, timeout_seconds: float, *, monotonic: Callable[[], float]) -> CycleRequest | None:
        self.waits.append(timeout_seconds)
        return None


def test_a_database_whose_clock_is_behind_is_not_asked_without_a_pause(it: Around) -> None:
    # due by our clock and not by the database's: the inbox gives nothing, and must not be asked as fast as it can
    it.alert("warm-1")
    patience = Patience()
    it.worker.queue = patience
    it.stopping[:] = [False, True]
    it.worker.run()
    assert patience.waits == [SHORTEST_NAP_SECONDS]


class Defective:
    """An inbox with a defect."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)

    def due(self, *, expire_after_seconds: float) -> Sequence[AlertEpisode]:
        raise TypeError("a mistake of ours")


def test_alerts_that_can_not_be_read_by_a_defect_stop_no_other_cycle(tmp_path: Path) -> None:
    with around(tmp_path, wrap_inbox=Defective) as it:
        it.work(for_node("warm-1"))
        (failed,) = it.parts.current()
        assert failed.name == "alerts"
        assert failed.cause.startswith("TypeError: a mistake of ours (test_worker.py:")
        assert it.worker._nap() > SHORTEST_NAP_SECONDS


class FailsOnce:
    """Records with a defect that shows once."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def begin(self, report: CycleReport) -> None:
        FailsOnce.failed, before = True, FailsOnce.failed
        if not before:
            raise KeyError("a mistake of ours")
        self._records.begin(report)

    failed = False


def test_an_unexpected_error_ends_its_cycle_alone_and_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "PAUSE_AFTER_ERROR_SECONDS", 0.01)
    with around(tmp_path, wrap_records=FailsOnce) as it:
        it.queue.put(for_node("warm-1"))
        it.stopping[:] = [False, False, True]
        it.worker.run()
        (failed,) = it.parts.current()
        assert (failed.name, failed.failures) == ("cycles", 1)
        assert it.waiting() is None, "a request that fails by a defect would fail for ever"
        it.stopping[:] = [False]
        it.alert("warm-2")
        it.work()
        assert it.evicted() == ["warm-2"]
        assert it.parts.current() == []


def test_an_unexpected_error_of_the_ledger_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a mistake of ours")

    with around(tmp_path) as it:
        monkeypatch.setattr(SqlLedger, "reserve_all", broken)
        it.alert("warm-1")
        it.stopping[:] = [False]
        with pytest.raises(VitalError, match=r"^reserving evictions: KeyError: 'a mistake of ours' \(test_worker"):
            it.worker.run()
        assert it.evicted() == []


def test_a_process_without_memory_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    with around(tmp_path) as it:
        monkeypatch.setattr(worker_module, "execute_cycle", broken)
        it.queue.put(for_node("warm-1"))
        with pytest.raises(MemoryError):
            it.worker.run()
