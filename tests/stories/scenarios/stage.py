"""A lab that is rebalanced in stories: the real client over HTTP, a real SQLite file, and time that passes on request.
What happened is read from the lab's own log.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import CycleContext, ForecastReaders, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.daemon.threads.journaling import JournalWriter
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import Lab, NodeSpec, Scenario, node, workload
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.ports import Clock, Ledger
from rebalancer.policy import RebalancerPolicy
from rebalancer.store.journal import DayJournal
from tests.programs.cli import policy_for
from tests.stories.readers import Log

START = 1_790_000_000.0
RATE_WINDOW = 60.0
TURN_SECONDS = 120.0
"""From one cycle to the next: longer than a rate window and its slack, so that nothing is settling."""
HIGH = 75.0
NO_COOLDOWNS = dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp"), "0s")

TOLERATES_ALL = ({"operator": "Exists"},)

GENEROUS: dict[str, Any] = {
    "perCycle": 100,
    "cluster": {"inFlight": 100},
    "node": {"evictions": [{"max": 100, "per": "10m"}]},
    "service": {"inFlight": 1},
    "replacements": {"perNode": 20},
}
"""Limits that leave it to budgets, services and waves how fast it goes."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """One lab and one run that goes on for many cycles."""

    lab: Lab
    policy: RebalancerPolicy
    settings: Settings
    world: CycleContext
    reports: list[CycleReport] = field(default_factory=list)

    def cycle(self) -> CycleReport:
        """One cycle now; it must have been safe to act."""
        report = run_cycle(self.world, self.policy, dry_run=False).report
        assert report.stopped is None, report.stopped
        self.reports.append(report)
        return report

    def turn(self, seconds: float = TURN_SECONDS) -> CycleReport:
        """Let time pass, then one cycle."""
        self.lab.clock.sleep(seconds)
        return self.cycle()

    def turns(self, count: int, seconds: float = TURN_SECONDS) -> None:
        for _ in range(count):
            self.turn(seconds)

    @property
    def log(self) -> Log:
        """The lab's log until now."""
        return Log.of(self.lab)

    @property
    def ledger(self) -> Ledger:
        assert self.world.ledger is not None
        return self.world.ledger


def stories_policy(lab: Lab, *, own_resources: Iterable[dict[str, str]] = (), **sections: Any) -> dict[str, Any]:
    """The document; `sections` replace top-level ones, `own_resources` are named by queries."""
    document = policy_for(lab.prometheus_url, **{"safety": {"cooldowns": NO_COOLDOWNS}, **sections})
    document["usage"] = {**document["usage"], "rateWindow": f"{RATE_WINDOW:g}s"}
    document["usage"]["prometheus"]["resources"] = list(own_resources)
    return document


def a_scenario(nodes: Iterable[NodeSpec | str], *workloads: Any, **fields: Any) -> Scenario:
    """With a short rate window, so that a story is short. A name alone is a machine of 16 cores."""
    machines = tuple(a_machine(each) if isinstance(each, str) else each for each in nodes)
    return Scenario(nodes=machines, workloads=workloads, rate_window_seconds=RATE_WINDOW, **fields)


@contextmanager
def a_run(lab: Lab, folder: Path, **sections: Any) -> Iterator[Stage]:
    """A process that rebalances this lab, with the database of the folder."""
    policy = RebalancerPolicy.model_validate(stories_policy(lab, **sections))
    settings = settings_in(folder, lab)
    with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
        yield Stage(lab=lab, policy=policy, settings=settings, world=world)


def settings_in(folder: Path, lab: Lab) -> Settings:
    """A database, a history and access to the lab, all in one folder."""
    return Settings(
        database=f"sqlite:///{folder / 'rebalancer.db'}",
        history_dir=str(folder / "history"),
        kubeconfig=str(lab.write_kubeconfig(folder / "config")),
    )


@contextmanager
def a_stage(cluster: Scenario, folder: Path, **sections: Any) -> Iterator[Stage]:
    """A run against this cluster. On the way out the run ends, in the way that it does on every way out."""
    folder.mkdir(exist_ok=True)
    with Lab.start(cluster, stepped=True, start_time=START) as lab, a_run(lab, folder, **sections) as stage:
        yield stage


# ---- a run that looks ahead


@dataclass(slots=True, kw_only=True)
class ForeseeingStage(Stage):
    """A stage whose cycles know the forecast, as a daemon's do."""

    lookout: ForecastLoop

    def cycle(self) -> CycleReport:
        """What a worker does: a look ahead when it is time for one, then a cycle of everything."""
        request = CycleRequest(trigger=Trigger.PERIODIC)
        if self.policy.forecast.mode != "Off" and self.lab.clock.now() >= self.lookout.next_at():
            ahead = self.lookout.look(self.world.cluster.snapshot()).request()
            request = request if ahead is None else request.merged(ahead)
        report = run_cycle(self.world, self.policy, request=request, dry_run=False).report
        assert report.stopped is None, report.stopped
        self.reports.append(report)
        return report


@contextmanager
def a_foreseeing_stage(cluster: Scenario, folder: Path, *, start: float, **sections: Any) -> Iterator[ForeseeingStage]:
    """A run against this cluster from `start` on, with a real history read over HTTP."""
    folder.mkdir(exist_ok=True)
    with Lab.start(cluster, stepped=True, start_time=start) as lab:
        policy = RebalancerPolicy.model_validate(stories_policy(lab, **sections))
        settings = settings_in(folder, lab)
        with (
            acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world,
            history_keepers(policy, settings, progress=NullProgress(), clock=lab.clock) as keepers,
        ):
            lookout = ForecastLoop(policy=policy, keepers=keepers, clock=lab.clock, ledger=world.ledger)
            knowing = replace(
                world,
                forecasts=ForecastReaders(
                    peaks=lookout.peaks,
                    service_day_profiles=lookout.service_day_profiles,
                    memory_leaks=lookout.memory_leaks,
                ),
            )
            yield ForeseeingStage(lab=lab, policy=policy, settings=settings, world=knowing, lookout=lookout)


class NoAlerts:
    """`OpenEpisodes` without any."""

    def open_episodes(self) -> list[AlertEpisode]:
        return []


def journal_writer(folder: Path, world: CycleContext, clock: Clock, *, cluster: str) -> JournalWriter:
    """Writes what this context's ledger and cluster show into the folder's journal."""
    assert world.ledger is not None
    return JournalWriter(
        journal=DayJournal(folder, cluster=cluster),
        ledger=world.ledger,
        inbox=NoAlerts(),
        snapshot=world.cluster.snapshot,
        leads=lambda: True,
        clock=clock,
        parts=world.parts,
    )


# ---- small clusters


def a_machine(name: str, **fields: Any) -> NodeSpec:
    """16 cores, nothing used besides its pods."""
    return node(name, **{"cpu": 16, "overhead_cores": 0.0, **fields})


def burner(name: str, on: str, cores: float, **fields: Any) -> Any:
    """A bare pod, which may not be moved. Without a request the scheduler takes its node for empty."""
    return workload(name, namespace="burn", kind="Pod", place={on: 1}, cpu=cores, **fields)


def service(name: str, place: Mapping[str, int], **fields: Any) -> Any:
    """A Deployment in `shop` whose pods use a core and request half of one."""
    usual = {"namespace": "shop", "cpu": 1.0, "cpu_request": "500m", "memory_request": "256Mi"}
    return workload(name, **{**usual, "place": dict(place), **fields})


# ---- what the reports say


def codes(reports: CycleReport | Iterable[CycleReport], prefix: str = "") -> set[str]:
    """Of the pods with this prefix that were refused: the codes."""
    several = [reports] if isinstance(reports, CycleReport) else reports
    return {str(each.code) for report in several for each in report.refusals if each.name.startswith(prefix)}


def messages(report: CycleReport, prefix: str) -> set[str]:
    """Of the pods with this prefix that were refused: the sentences."""
    return {each.message for each in report.refusals if each.name.startswith(prefix)}
