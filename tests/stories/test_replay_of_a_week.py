"""Eight days of the lab in which the cycles really ran, and their replays from the journal and from a real Prometheus.

The lab itself says what happened: hot minutes by its usage model, evictions by its API server's log. Four labs of two
days each are summed up: in a single one, which of two pods is evicted may depend on a thousandth of a core, and
everything after it does.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bench.day.run import MIDNIGHT, daemon_of, policy_of
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.journal import recording_from_journal, stored_usage
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.bootstrap.recordings.replay import policy_run
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.lab import CpuModel, Lab, NodeSpec, PdbSpec, Scenario, WorkloadSpec, node, workload
from rebalancer.lab.scenarios.steps import RollOut
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.cycles.run import high_millicores, measured
from rebalancer.replay.runner.job import Job, Mode, run_job
from tests.real.builders.lab_history import lab_history
from tests.real.builders.prometheus_days import fill_days
from tests.real.servers.prometheus import prometheus_server
from tests.stories.scenarios.stage import journal_writer

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

DAYS, PERIOD, NODES = 2, 1800.0, 8
SEEDS = (2, 3, 4, 5)
START = MIDNIGHT + 600.0
END = MIDNIGHT + DAYS * DAY_SECONDS
HIGH = {"general": 0.75}
SPACING = 60.0
ROLLED_OUT = ("greedy-0", "greedy-1", "greedy-2", "greedy-3", "app-1", "night-0")


def the_cluster(seed: int) -> Scenario:
    """Services that use five times their requests by day, others that use little, and three rollouts a day."""
    random = np.random.default_rng(seed)
    nodes: list[NodeSpec] = [
        node(f"n{at}", cpu=16, memory="64Gi", pool="general", overhead_cores=0.3) for at in range(NODES)
    ]
    services: list[WorkloadSpec] = []

    def service(name: str, replicas: int, base: float, amplitude: float, peak: float, request: str) -> None:
        place: dict[str, int] = {}
        for _ in range(replicas):
            chosen = f"n{int(random.integers(NODES))}"
            place[chosen] = place.get(chosen, 0) + 1
        services.append(
            workload(
                name,
                namespace="shop",
                place=place,
                cpu=CpuModel(base=base, amplitude=amplitude, peak_hour=peak, noise=0.05),
                cpu_request=request,
                memory_request="512Mi",
                pdb=PdbSpec(max_unavailable=1),
            )
        )

    for at in range(4):
        service(f"greedy-{at}", 6, 2.0, 0.45, 12 + at, "400m")
    for at in range(6):
        service(f"app-{at}", 5, 0.45, 0.3, 9 + at, ("250m", "1", "700m")[at % 3])
    for at in range(2):
        service(f"night-{at}", 6, 0.6, 0.5, 2, "1500m")
    steps = [
        RollOut(
            at_seconds=day * DAY_SECONDS + 3600.0 * float(random.uniform(7, 16)),
            namespace="shop",
            workload=ROLLED_OUT[int(random.integers(len(ROLLED_OUT)))],
        )
        for day in range(DAYS)
        for _ in range(3)
    ]
    return Scenario(
        name="days",
        nodes=tuple(nodes),
        workloads=tuple(services),
        steps=tuple(sorted(steps, key=lambda step: step.at_seconds)),
        start_seconds=30.0,
        stop_seconds=10.0,
        anchor_hour=0.0,
        history_days=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Days:
    """The days of one lab as it saw them, and the recordings of them."""

    policy: RebalancerPolicy
    hot_minutes: int
    evictions: int
    from_prometheus: Recording
    from_journal: Recording

    def recording(self, source: str) -> Recording:
        """One of the recordings."""
        found: Recording = getattr(self, source)
        return found

    def replayed(self, source: str, mode: Mode) -> ReplayRun:
        """A run over one of the recordings."""
        return run_job(Job(policy=self.policy, mode=mode, label=mode, high=HIGH), self.recording(source), policy_run)

    def measured(self, source: str) -> float:
        """Hot node-minutes of a recording as measured."""
        recording = self.recording(source)
        return float(measured(recording, high_millicores(recording, self.policy, HIGH))[1].sum())


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> list[Days]:
    return [days_of(seed, tmp_path_factory.mktemp(f"lab{seed}")) for seed in SEEDS]


def days_of(seed: int, folder: Path) -> Days:
    """One lab."""
    with Lab.start(the_cluster(seed), stepped=True, start_time=MIDNIGHT, seed=seed) as lab:
        policy = policy_of(lab.prometheus_url)
        every = tuple(each.model_copy(update={"interval": PERIOD}) for each in policy.strategies)
        off = policy.forecast.model_copy(update={"mode": "Off"})
        policy = policy.model_copy(update={"strategies": every, "forecast": off})
        live(lab, policy, folder)
        minutes = np.arange(START + 60.0, END + 1.0, 60.0)
        figures = lab.usage.window_means(minutes)
        shares = figures.nodes / np.array([machine.cores for machine in figures.columns.machines])[:, None]
        evicted = [each for each in lab.log.evictions(code=201) if each.user_agent.startswith("rebalancer")]
        from_prometheus, from_journal = recordings(lab, policy, folder)
        return Days(
            policy=policy,
            hot_minutes=int(((shares > HIGH["general"]) & figures.up).sum()),
            evictions=len(evicted),
            from_prometheus=from_prometheus,
            from_journal=from_journal,
        )


def live(lab: Lab, policy: RebalancerPolicy, folder: Path) -> None:
    """Cycles, each written to the journal, as the daemon does it. The first is an interval after START."""
    lab.clock.sleep(START - lab.clock.now())
    with daemon_of(lab, policy) as (made, evaluation):
        journal = journal_writer(folder, made, lab.clock, cluster=policy.cluster)
        context = replace(made, record_usage=journal.observed)
        while lab.clock.now() < END:
            next_at = lab.clock.now() + PERIOD
            if lab.clock.now() > START:
                evaluation.turn()
                run_cycle(context, policy, request=CycleRequest(trigger=Trigger.PERIODIC), dry_run=False)
            journal.turn(done=True)
            # the daemon appends every minute; here it is only while pods come and go after a cycle
            for at in (next_at - PERIOD + 60.0, next_at):
                lab.clock.sleep(max(0.0, min(at, END) - lab.clock.now()))
                journal.turn(done=True)


def recordings(lab: Lab, policy: RebalancerPolicy, folder: Path) -> tuple[Recording, Recording]:
    """From Prometheus alone, and from the journal with the day blocks that were read for it."""
    pools = dict.fromkeys((f"n{at}" for at in range(NODES)), "general")

    def fill(data: Path) -> None:
        days = range(int(MIDNIGHT // DAY_SECONDS), int(END // DAY_SECONDS) + 1)
        series = lab_history(lab, since=MIDNIGHT, until=END, pools=pools)
        fill_days(data, series, days=days, since=MIDNIGHT, until=END, spacing=SPACING)

    settings = Settings(history_dir=str(folder), kubeconfig=str(lab.write_kubeconfig(folder / "kubeconfig")))
    with prometheus_server([], fill=fill) as server:
        own = type(policy.usage).model_validate({"source": "Prometheus", "prometheus": {"url": server.url}})
        scraped = policy.model_copy(update={"usage": own})
        clock = lab.clock
        clock.sleep(120.0)  # a step is read a minute after its end
        from_prometheus = read_recording(
            scraped, settings, since_seconds=END - START, until=END, progress=NullProgress(), clock=clock
        )
        usage = stored_usage(
            scraped, settings, from_prometheus.today, start=START, clock=clock, progress=NullProgress()
        )
    from_journal = recording_from_journal(
        policy, settings, start=START, end=END, today=from_prometheus.today, usage=usage
    )
    return from_prometheus, from_journal


def close(found: float, expected: float, share: float) -> bool:
    return abs(found - expected) <= share * expected


@pytest.mark.parametrize("source", ["from_prometheus", "from_journal"])
def test_replay_of_the_policy_gives_what_the_labs_counted(labs: list[Days], source: str) -> None:
    """From the journal cycles read what was read, so they decide the same."""
    runs = [days.replayed(source, "policy") for days in labs]
    for seed, days, run in zip(SEEDS, labs, runs, strict=True):
        print(f"lab {seed}: {days.hot_minutes} min, {days.evictions} evictions")
        print(f"  replay {source}: {run.hot_node_minutes:.0f} min, {len(run.evictions)} evictions")
        assert int((days.recording(source).pods.replaced >= 0).sum()) == days.evictions
        if source == "from_journal":
            assert close(run.hot_node_minutes, days.hot_minutes, 0.03)
            assert len(run.evictions) == days.evictions
    hot, evictions = sum(days.hot_minutes for days in labs), sum(days.evictions for days in labs)
    assert evictions >= 50
    assert close(sum(run.hot_node_minutes for run in runs), hot, 0.1)
    assert close(sum(len(run.evictions) for run in runs), evictions, 0.2)


@pytest.mark.parametrize("source", ["from_prometheus", "from_journal"])
def test_replay_as_recorded_reproduces_the_measured_hot_minutes(labs: list[Days], source: str) -> None:
    for days in labs:
        again = days.replayed(source, "recorded")
        print(f"{source}: measured {days.measured(source):.0f} min, as recorded {again.hot_node_minutes:.0f}")
        assert close(days.measured(source), days.hot_minutes, 0.03)
        assert close(again.hot_node_minutes, days.measured(source), 0.03)


@pytest.mark.parametrize("source", ["from_prometheus", "from_journal"])
def test_replay_without_evictions_undoes_those_of_the_labs(labs: list[Days], source: str) -> None:
    alone = [days.replayed(source, "none") for days in labs]
    assert not any(run.evictions for run in alone)
    assert sum(run.hot_node_minutes for run in alone) > 1.5 * sum(days.hot_minutes for days in labs)
