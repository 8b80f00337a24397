"""A lab that is rebalanced and judged afterwards: pools that are a case each, and a daemon that can be away.

A pool's services stay in their pool, so no case disturbs another. What makes a node hot is a bare pod that requests
nearly the whole machine: nothing that leaves it comes back.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.observe.observation import Observation, observe
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.evaluation.assessments import run_due_assessments
from rebalancer.evaluation.hot_nodes import LAG_SECONDS, evaluate_slo
from rebalancer.lab import CpuModel, Lab, NodeSpec, Scenario, workload
from rebalancer.model.decisions import limits
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.records.effect import Assessment, DayRow, EffectRecords, HotEpisode, Step
from rebalancer.model.records.forecasts import ForecastRecords
from rebalancer.policy import RebalancerPolicy
from rebalancer.prometheus.history.slo import PrometheusSlo
from rebalancer.store import open_records, upgrade
from tests.stories.oracles.effect import Book, Case, Rules, Standard
from tests.stories.scenarios.stage import NO_COOLDOWNS, START, a_machine, a_scenario, service, stories_policy

MINUTE = 60.0
EVERY_SECONDS = 120.0
"""From one look to the next."""
READ_AFTER_LOOKS = 3
"""So often the standard is read."""
SETTLE_SECONDS = 600.0
FOR_SECONDS = 120.0
DEBOUNCE_SECONDS = 150.0
"""Longer: what we act on is hot by the standard, too."""
BEGIN = START - START % 3600.0
"""A full hour: the standard is read on whole minutes."""
PLENTY = {"perCycle": 50, "cluster": {"inFlight": 50}}
"""Many cases in one cycle."""


@dataclass(slots=True, kw_only=True)
class Daemon:
    """One process, from its start to its end: what it does is left in the database."""

    lab: Lab
    policy: RebalancerPolicy
    world: CycleContext
    effect: EffectRecords
    forecasts: ForecastRecords
    book: Book
    reader: PrometheusSlo
    made: list[Assessment]
    reads: bool
    """Whether it reads the standard now and then; else that is done when the story is over."""
    dry_run: bool = False
    overlooked: frozenset[str] = frozenset()
    """Nodes that no request names; empty = every cycle is for all."""

    def live(self, minutes: float) -> None:
        """Look every two minutes."""
        for look in range(round(minutes * MINUTE / EVERY_SECONDS)):
            self.lab.clock.sleep(EVERY_SECONDS)
            self.look()
            if self.reads and look % READ_AFTER_LOOKS == 0 and known_until(self.lab) > BEGIN:
                self.read()

    def look(self) -> None:
        """One cycle, with what is due beside it."""
        world, policy = self.world, self.policy
        request, asked = CycleRequest(trigger=Trigger.PERIODIC), None
        if self.overlooked:
            asked = frozenset(each["metadata"]["name"] for each in self.lab.cluster.nodes()) - self.overlooked
            request = CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({RequestScope(nodes=asked)}))
        self.book.look(asked=asked, acts=not self.dry_run)
        seen = observe(world, policy, writes=not self.dry_run)
        assert world.ledger is not None
        assessed = run_due_assessments(
            self.effect,
            seen.snapshot,
            seen.usage,
            replacements=world.ledger.replacements,
            policy=policy,
            now=self.lab.clock.now(),
        )
        assert assessed.notes == ()
        self.made += assessed.made
        report = run_cycle(world, policy, request=request, dry_run=self.dry_run).report
        assert report.stopped is None, report.stopped

    def read(self) -> None:
        """Read the standard as far as it goes now."""
        behind = True
        while behind:
            seen = observe(self.world, self.policy, writes=False)
            reading = evaluate_slo(
                self.reader,
                self.effect,
                seen.snapshot,
                seen.node_pools,
                self.policy,
                now=self.lab.clock.now(),
                pauses=partial(_pauses, seen),
            )
            assert reading.notes == ()
            behind = reading.behind
        assert reading.read_until == known_until(self.lab)


def known_until(lab: Lab) -> float:
    """What the standard is read up to: whole minutes, a few minutes ago."""
    return math.floor((lab.clock.now() - LAG_SECONDS) / MINUTE) * MINUTE


@dataclass(slots=True, kw_only=True)
class EffectStage:
    """A lab, a policy and a database; daemons come and go."""

    lab: Lab
    policy: RebalancerPolicy
    settings: Settings
    book: Book
    reads: bool = True
    """Whether daemons read the standard now and then."""
    made: list[Assessment] = field(default_factory=list)
    """By any of the daemons."""

    @contextmanager
    def daemon(self, *, dry_run: bool = False, overlooked: Iterable[str] = ()) -> Iterator[Daemon]:
        """A process of its own: connections, the Lease and everything in memory are new."""
        with acting_context(
            self.policy, self.settings, progress=NullProgress(), clock=self.lab.clock, dry_run=dry_run
        ) as world:
            records = open_records(url=self.settings.database, cluster=self.policy.cluster, clock=self.lab.clock)
            reader = PrometheusSlo(self.policy.usage, self.policy.effect.hot_node_slo)
            try:
                yield Daemon(
                    lab=self.lab,
                    policy=self.policy,
                    world=replace(world, effect=records.effect()),
                    effect=records.effect(),
                    forecasts=records.forecasts(),
                    book=self.book,
                    reader=reader,
                    made=self.made,
                    reads=self.reads,
                    dry_run=dry_run,
                    overlooked=frozenset(overlooked),
                )
            finally:
                reader.close()
                records.close()

    def pause(self, pools: Iterable[str]) -> None:
        """An operator pauses these pools."""
        upgrade(self.settings.database)
        records = open_records(url=self.settings.database, cluster=self.policy.cluster, clock=self.lab.clock)
        try:
            ledger = records.ledger(clock=self.lab.clock)
            for name in pools:
                scope = limits.Scope("pool", f"{self.policy.cluster}/{name}")
                ledger.pause(scope, reason="a story", created_by="test", until=None)
        finally:
            records.close()

    # ---- when it is over

    def high_of(self, pool: str) -> float:
        """Our own mark."""
        return self.book.pools[pool].high

    def truth(self) -> list[Case]:
        """All episodes by the lab."""
        return self.book.cases(since=BEGIN, until=known_until(self.lab))

    def records(self) -> "Records":
        """All episodes by us, as they are recorded once the standard was read."""
        with self.daemon() as daemon:
            daemon.read()
            day, now = int(BEGIN // 86_400), self.lab.clock.now() + 1.0
            return Records(
                episodes=daemon.effect.episodes(BEGIN, now),
                assessments=daemon.effect.assessments(BEGIN, now),
                days=daemon.effect.days(day, day + 2),
            )


def _pauses(seen: Observation) -> Sequence[limits.Pause]:
    return seen.ledger_state.pauses


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What is in the database."""

    episodes: Sequence[HotEpisode]
    assessments: Sequence[Assessment]
    days: Sequence[DayRow]

    def settled(self) -> dict[str, Assessment]:
        """Node -> what was found there after the settle time; one for each."""
        found = [each for each in self.assessments if each.step is Step.SETTLED and each.outcome is not None]
        assert len({each.node for each in found}) == len(found)
        return {each.node: each for each in found}


@contextmanager
def an_effect_stage(
    folder: Path,
    nodes: Iterable[NodeSpec],
    workloads: Iterable[Any],
    pools: Mapping[str, Rules],
    *,
    debounce_seconds: float = DEBOUNCE_SECONDS,
    cooldown_seconds: float = 0.0,
    reads: bool = True,
    scenario: Mapping[str, Any] | None = None,
    **sections: Any,
) -> Iterator[EffectStage]:
    """Without any past: what the standard knows begins with the story."""
    cluster: Scenario = a_scenario(nodes, *workloads, history_days=0.0, **(scenario or {}))
    with Lab.start(cluster, stepped=True, start_time=BEGIN) as lab:
        document = stories_policy(
            lab,
            pools=[_pool(name, rules) for name, rules in pools.items()],
            strategies=[
                {
                    "name": "LowNodeUtilization",
                    "interval": f"{EVERY_SECONDS:g}s",
                    "pools": [name for name, rules in pools.items() if rules.covered],
                }
            ],
            effect={
                "hotNodeSLO": {"for": f"{FOR_SECONDS:g}s", "threshold": 75},
                "settlingTime": f"{SETTLE_SECONDS:g}s",
            },
            lists={"deny": [{"pools": [name]} for name, rules in pools.items() if rules.denied]},
            serviceLevels={
                "default": "usual",
                "services": {
                    "fixed": [f"shop/{name}-*" for name, rules in pools.items() if rules.untouchable] or ["-/-"]
                },
                "levels": [{"name": "usual"}, {"name": "fixed", "evict": False}],
            },
            safety={"cooldowns": {**NO_COOLDOWNS, "node": f"{cooldown_seconds:g}s"}},
            **{"limits": PLENTY, **sections},
        )
        document["usage"]["stabilizationWindow"] = {"samples": 2, "duration": f"{debounce_seconds:g}s"}
        standard = Standard(
            for_seconds=FOR_SECONDS,
            debounce_seconds=debounce_seconds,
            settle_seconds=SETTLE_SECONDS,
            every_seconds=EVERY_SECONDS,
            cooldown_seconds=cooldown_seconds,
        )
        stage = EffectStage(
            lab=lab,
            policy=RebalancerPolicy.model_validate(document),
            settings=Settings(
                database=f"sqlite:///{folder / 'rebalancer.db'}",
                kubeconfig=str(lab.write_kubeconfig(folder / "config")),
            ),
            book=Book(lab=lab, pools=pools, standard=standard),
            reads=reads,
        )
        stage.pause(name for name, rules in pools.items() if rules.paused)
        yield stage


def _pool(name: str, rules: Rules) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": name,
        "selector": {"matchLabels": {"pool": name}},
        "thresholds": {"high": 100 * rules.high, "target": 100 * rules.target, "low": 100 * rules.low},
    }
    if rules.closed:
        night = {"name": "night", "kind": "Allow", "schedule": "0 0 * * *", "duration": "1h"}
        document["windows"] = [night]
    if rules.evictions_at_most is not None:
        document["limits"] = {"evictions": [{"max": rules.evictions_at_most, "per": "12h"}]}
    return document


# ---- small clusters


def machines(pool: str, *names: str, **fields: Any) -> list[NodeSpec]:
    """16 cores each."""
    return [a_machine(f"{pool}-{name}", pool=pool, **fields) for name in names]


def services(pool: str, place: Sequence[str] = ("hot", "cool"), *, prefix: str = "", **fields: Any) -> list[Any]:
    """Three of a core each, with a replica on each of these nodes of the pool."""
    where = {f"{pool}-{name}": 1 for name in place}
    return [service(f"{prefix or pool}-{name}", where, node_selector={"pool": pool}, **fields) for name in "abc"]


def heat(lab: Lab, node: str, cores: float = 9.8, *, cpu_request: str = "15800m", name: str = "heat") -> None:
    """Something begins to use that much, from now on."""
    cpu = CpuModel(base=cores, noise=0.01)
    lab.cluster.add_workload(
        workload(f"{name}-{node}", namespace="burn", kind="Pod", place={node: 1}, cpu=cpu, cpu_request=cpu_request)
    )


def cool(lab: Lab, node: str) -> None:
    """It is over."""
    with lab.cluster.lock:
        lab.cluster.store.remove("pods", "burn", f"heat-{node}")


def set_ready(lab: Lab, node: str, *, ready: bool) -> None:
    """Its kubelet is heard of, or not."""

    def apply(new: dict[str, Any]) -> None:
        new["status"]["conditions"] = [
            {**each, "status": str(ready)} if each["type"] == "Ready" else each for each in new["status"]["conditions"]
        ]

    with lab.cluster.lock:
        lab.cluster.store.change("nodes", lab.cluster.store.get("nodes", "", node), apply)
