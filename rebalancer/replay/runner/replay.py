"""Runs of one recording side by side: as recorded, without evictions, and under each policy."""

from collections.abc import Callable, Sequence
from dataclasses import replace as dataclass_replace

import numpy as np

from rebalancer.cycle.context import NullProgress
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Gap, Recording
from rebalancer.model.recordings.replay import Replay, ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high
from rebalancer.replay.comparison.bound import bound_of
from rebalancer.replay.comparison.capacity import capacity_of
from rebalancer.replay.comparison.hot_minutes import hot_minutes
from rebalancer.replay.comparison.variants import Change, Variant
from rebalancer.replay.cycles.run import high_millicores, measured
from rebalancer.replay.runner.job import Compose, Job, Mode
from rebalancer.replay.runner.jobs import SPLIT_NODES, Runner
from rebalancer.replay.runner.workers import open_workers

AS_RECORDED, WITHOUT = "as recorded", "without rebalancer"


def replay(
    recording: Recording,
    policy: RebalancerPolicy,
    variants: Sequence[Variant],
    *,
    compose: Compose,
    scheduler_of: Callable[[RebalancerPolicy], SchedulerConfig],
    seed: int = 0,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Replay | None:
    """The recording under each of `variants`, in `workers` processes or on the workers of a Dask `scheduler`.
    `scheduler_of`: the configuration of kube-scheduler that a policy names.

    The pools, and the share over which nodes count as hot, are those of `policy` in every run.

    When `stopping` returns true the runs end where they are, and no other begins: None where none had begun. Raises
    ConfigError, ConnectError without a scheduler, and what a run raises.
    """
    high = {pool.name: most for pool in policy.pools if (most := fixed_high(pool, CPU)) is not None}
    unknown = [pool.name for pool in policy.pools if pool.name not in high]
    if not high:
        raise ConfigError("pools: no pool has a fixed thresholds.high, which hot node-hours are counted by")

    def job(mode: Mode, label: str, under: RebalancerPolicy, change: Change | None = None) -> Job:
        # read here: a worker on another machine doesn't have the file
        scheduled = scheduler_of(under)
        return Job(policy=under, mode=mode, label=label, high=high, seed=seed, scheduler=scheduled, change=change)

    marks = high_millicores(recording, policy, high)
    hot_over = marks / np.maximum(recording.nodes.cpu_capacity_millicores, 1.0)

    def counted(run: ReplayRun) -> ReplayRun:
        # another policy may have other pools
        return dataclass_replace(run, hot_minutes=hot_minutes(run.share, hot_over))

    known = [job("recorded", AS_RECORDED, policy)]
    if np.any(recording.pods.replaced >= 0):
        known.append(job("none", WITHOUT, policy))
    of_policies = [job("policy", each.label, each.policy, each.change) for each in variants]
    if len(recording.nodes) < SPLIT_NODES:
        workers = min(workers, max(len(of_policies), 1))
    with open_workers(workers=workers, scheduler=scheduler) as opened:
        jobs = [*known, *of_policies]
        runner = Runner(workers=opened, compose=compose, progress=progress or NullProgress(), stopping=stopping)
        runs = runner.run(jobs, recording)
        done = {each.label: counted(run) for each, run in zip(jobs, runs, strict=True) if run is not None}
    if AS_RECORDED not in done:
        return None
    as_recorded = done[AS_RECORDED]
    gaps = [Gap(f"pool {name} has no fixed high: its nodes never count as hot", 0) for name in unknown]
    share, minutes = measured(recording, marks)
    pools = NodePools.of(policy.pools, recording.nodes).names
    return Replay(
        cluster=recording.cluster,
        source=recording.source,
        start=recording.start,
        end=recording.end,
        nodes=tuple(recording.nodes.names),
        pools=tuple(pools),
        high=high,
        pods=len(recording.pods),
        measured_share=share,
        measured_hot_minutes=minutes,
        as_recorded=as_recorded,
        without=done.get(WITHOUT, as_recorded),
        runs=tuple(done[each.label] for each in variants if each.label in done),
        bound=bound_of(recording, marks),
        capacity=capacity_of(recording, pools, marks),
        gaps=(*recording.gaps, *gaps),
        seed=seed,
        parts={each.label: each.part for each in variants},
    )
