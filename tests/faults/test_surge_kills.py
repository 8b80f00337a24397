"""Replacement first, interrupted anywhere: the next leader ends every surge and leaves nothing."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rebalancer.cycle.evict.surges import CALL_SECONDS, SurgeLoop
from rebalancer.cycle.observe.ledger_state import landed_since
from rebalancer.kube.actions.surges import KubeSurges
from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Outcome, eviction_of
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.surges import Surge, SurgeCall, SurgeView
from rebalancer.model.errors import ConnectError
from rebalancer.model.reason import Refusal
from rebalancer.store import SqlRecords, SqlSurges
from tests.builders import set_fields
from tests.faults.fakes import Killed
from tests.kube.fakes.api import client_of_lab
from tests.stories.scenarios.stage import Stage, a_scenario, a_stage, service
from tests.stories.scenarios.surges import Readiness, as_before, living

KILLS = 100
MOST_OPERATIONS = 14
"""A surge has fewer calls and writes."""
SERVICES = ("quick", "slow", "pair")
"""The newcomers of `slow` are never Ready in time."""


@dataclass
class Interruption:
    """Ends the process at its n-th call or write, or the next one that can be interrupted so."""

    at: int
    how: str
    """`before`, `after`, `lost` (its answer), or `later`: it is carried out when the next process leads."""
    delayed: list[Callable[[], object]] = field(default_factory=list)
    count: int = 0
    done: bool = False

    def around(self, call: Callable[[], Any], *, sent: bool) -> Any:
        self.count += 1
        if self.done or self.count < self.at or (self.how in ("lost", "later") and not sent):
            return call()
        self.done = True
        if self.how == "later":
            self.delayed.append(call)
        elif self.how != "before":
            call()
        raise ConnectError("the answer was lost") if self.how == "lost" else Killed


@dataclass
class InterruptedCalls:
    """The real ones."""

    calls: KubeSurges
    by: Interruption

    @property
    def manager(self) -> str:
        return self.calls.manager

    def look(self, surge: Surge) -> SurgeView:
        return self.calls.look(surge)

    def send(self, call: SurgeCall, surge: Surge, view: SurgeView, **_: Any) -> Refusal | None:
        found: Refusal | None = self.by.around(lambda: self.calls.send(call, surge, view), sent=True)
        return found


class InterruptedRecords(SqlSurges):
    """The real ones, in the same database."""

    by: Interruption

    def begin(self, surge: Surge) -> Surge | None:
        found: Surge | None = self.by.around(lambda: SqlSurges.begin(self, surge), sent=False)
        return found

    def change(self, surge: Surge, to: Surge) -> bool:
        return bool(self.by.around(lambda: SqlSurges.change(self, surge, to), sent=False))


def reserved(stage: Stage, name: str, number: int) -> Any:
    """A reserved eviction of the service's oldest pod."""
    pod = min(living(stage.lab, name), key=lambda each: each["metadata"]["creationTimestamp"])
    meta, now = pod["metadata"], stage.ledger.now()
    deployment = stage.lab.cluster.store.get("deployments", "shop", name)
    report = CycleReport(
        id=f"c{number}", cluster="test", trigger=Trigger.MANUAL, dry_run=False, started_at=stage.lab.clock.now()
    )
    eviction = eviction_of(
        namespace="shop",
        pod=meta["name"],
        uid=meta["uid"],
        node=pod["spec"]["nodeName"],
        pool="all",
        service=Service(kind="Deployment", namespace="shop", name=name),
        service_identity=f"shop/{name}",
        strategy="LowNodeUtilization",
        reason="hot",
        owner_uid=deployment["metadata"]["uid"],
        scopes=(Scope.of("cluster", "test"),),
        deadline_at=now + 120.0,
        replacement_first=True,
        ready_before=1,
        desired_before=1,
        grace_seconds=30.0,
    )
    stage.world.records.begin(report)
    (record,) = stage.ledger.reserve_all(report, [(eviction, [])], term=stage.world.lease.term)
    assert isinstance(record, int)
    return set_fields(eviction, record=record)


def test_a_hundred_kills_at_random_moments_are_all_repaired(tmp_path: Path) -> None:
    chance = random.Random(20_261_128)
    cluster = a_scenario(
        ("a", "b", "c"),
        service("quick", {"a": 1}, start_seconds=10.0),
        service("slow", {"b": 1}, start_seconds=3600.0),
        service("pair", {"a": 1, "b": 1}, start_seconds=10.0),
    )
    ends: Counter[str] = Counter()
    with a_stage(cluster, tmp_path) as stage, client_of_lab(stage.lab, tmp_path) as client:
        lab, records = stage.lab, stage.world.records
        assert isinstance(records, SqlRecords)
        engine = records.surges()._engine
        least = {"quick": 1, "slow": 1, "pair": 2}
        watch = Readiness(lab).begin(*SERVICES)
        for number in range(KILLS):
            name = SERVICES[number % 3]
            by = Interruption(chance.randint(1, MOST_OPERATIONS), chance.choice(["before", "after", "lost", "later"]))
            eviction = reserved(stage, name, number)
            doomed = InterruptedRecords(engine=engine, cluster="test", clock=lab.clock)
            doomed.by = by
            loop = SurgeLoop(
                records=doomed,
                calls=InterruptedCalls(KubeSurges(client=client), by),
                may=lambda: True,
                wanted=lambda _: True,
            )
            try:
                answer = loop.begin(eviction)
                assert answer.outcome is Outcome.EVICTED
                while loop.turn():
                    lab.clock.sleep(5.0)
            except Killed:
                pass
            # the next leader
            due = chance.uniform(0.0, CALL_SECONDS - 10.0)
            on = chance.random() < 1 / 2  # else its policy has replacement first no more, and it undoes at once
            loop = SurgeLoop(
                records=records.surges(clock=lab.clock),
                calls=KubeSurges(client=client),
                may=lambda: True,
                wanted=lambda _, on=on: on,
            )
            began = lab.clock.now()
            while loop.turn() or by.delayed:
                lab.clock.sleep(5.0)
                if by.delayed and lab.clock.now() - began >= due:
                    by.delayed.pop()()
                assert lab.clock.now() - began < 900.0, f"{number}: {by}"
            lab.clock.sleep(CALL_SECONDS)
            assert as_before(lab, name, least[name]), f"{number}: {by}"
            stage.ledger.reconcile_outcomes(stage.world.cluster)
            landed_since(stage.ledger, stage.policy.safety, stage.world.cluster)
            assert stage.ledger.open_evictions() == [], f"{number}: {by}"
            moved = eviction.uid not in {each["metadata"]["uid"] for each in living(lab, name)}
            ends[f"{name} moved" if moved else f"{name} stayed"] += 1
        assert watch.least == least
    # both ends were met
    assert min(ends["quick moved"], ends["pair moved"]) > KILLS / 9
    assert min(ends["quick stayed"], ends["pair stayed"]) > 2
    assert ends["slow moved"] == 0
