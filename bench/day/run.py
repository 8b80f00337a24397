"""One day of the lab, with the product's cycles or without.

With them: the adapters of the daemon against the lab's HTTP API, the ledger in a SQLite file, the shipped balanced
policy, and what the daemon does beside its cycles: assessments and their feedback.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from bench.day.account import Budgets, Day, account
from bench.day.cluster import GUARDED, HOUR, PERIOD_SECONDS, Size, make
from bench.day.state import coolable_nodes, hot_nodes
from bench.plan.cluster import Thresholds
from bench.plan.ports import FREE_OF_DISK
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import make_context
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.bootstrap.wiring.database import create_database, records_of
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.kube.actions.taints import KubeNodeTaints
from rebalancer.lab import Lab
from rebalancer.lab.faults import Webhook
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.policy import RebalancerPolicy

MIDNIGHT = 1_790_035_200.0
"""The day begins here, 2026-09-22 00:00 UTC."""
POLICY = Path(__file__).parents[2] / "policies" / "balanced.yaml"
LAB_QUERIES = {
    "nodeCPU": {
        "query": "instance:node_cpu_utilisation:rate5m",
        "freshness": 'timestamp(node_cpu_seconds_total{mode="idle"})',
    },
    "podCPU": {"query": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"},
}
WARM_UP_SECONDS = 600.0
"""Before the first cycle and before anything is counted: a rate window, and the pods of CronJobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One cycle."""

    at: float
    evicted: int
    hot: int
    """Nodes that were hot when it began."""
    coolable: int
    """Of these, nodes that can be cooled by the lower bound."""
    codes: dict[str, int]
    """Reason code -> hot nodes whose load it keeps, or the code that stopped the cycle."""
    stopped: str
    seconds: float

    @property
    def idle(self) -> bool:
        """It evicted nothing although a node could have been cooled."""
        return self.coolable > 0 and self.evicted == 0


@dataclass(slots=True, kw_only=True)
class Course:
    """What a day came to."""

    seed: int
    acts: bool
    day: Day
    cycles: list[Cycle] = field(default_factory=list)
    seconds: float = 0.0


class HeldLease:
    """A Lease that is never lost: a real one runs by the machine's clock, in which a day takes minutes."""

    term = 1

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Always."""
        return True


class SteppedEvictor:
    """An Evictor after whose calls the lab's controllers have reacted, so that nothing depends on threads."""

    def __init__(self, context: CycleContext, lab: Lab) -> None:
        self._evictor, self._lab = context.evictor, lab

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """As the evictor does."""
        answer = self._evictor.evict(eviction, server_dry_run=server_dry_run)
        self._lab.cluster.step()
        return answer


def policy_of(prometheus_url: str) -> RebalancerPolicy:
    """policies/balanced.yaml, with the recording rules of the lab's Prometheus."""
    document: dict[str, Any] = yaml.safe_load(POLICY.read_text())
    document["cluster"] = "day"
    document["usage"]["prometheus"] = {"url": prometheus_url, **LAB_QUERIES}
    document["strategies"][0]["interval"] = f"{PERIOD_SECONDS:g}s"
    return RebalancerPolicy.model_validate(document)


def thresholds_of(policy: RebalancerPolicy) -> Thresholds:
    """Of its only pool."""
    found = policy.pools[0].thresholds
    return Thresholds(high=found.high / 100, target=found.target / 100, low=found.low / 100)


def live(seed: int, size: Size, *, acts: bool) -> Course:
    """The day of a seed; `acts`: with cycles."""
    began = time.monotonic()
    with Lab.start(make(seed, size), stepped=True, start_time=MIDNIGHT, seed=seed) as lab:
        lab.faults.set(webhooks=(Webhook(pods=GUARDED, code=403, message="ask the owners"),))
        policy = policy_of(lab.prometheus_url)
        budgets = Budgets(lab)
        end = MIDNIGHT + size.hours * HOUR
        cycles: list[Cycle] = []
        lab.clock.sleep(WARM_UP_SECONDS)
        if acts:
            with daemon_of(lab, policy) as (context, evaluation):
                while lab.clock.now() < end:
                    next_at = lab.clock.now() + PERIOD_SECONDS
                    evaluation.turn()
                    cycles.append(cycle(lab, context, policy))
                    lab.clock.sleep(max(0.0, min(next_at, end) - lab.clock.now()))
        else:
            lab.clock.sleep(end - lab.clock.now())
        day = account(lab, budgets, policy, start=MIDNIGHT + WARM_UP_SECONDS, end=end, high=thresholds_of(policy).high)
    return Course(seed=seed, acts=acts, day=day, cycles=cycles, seconds=time.monotonic() - began)


def cycle(lab: Lab, context: CycleContext, policy: RebalancerPolicy) -> Cycle:
    """One periodic cycle, and what the lab says of its moment."""
    at, thresholds = lab.clock.now(), thresholds_of(policy)
    hot, coolable = hot_nodes(lab, thresholds.high), coolable_nodes(lab, thresholds)
    began = time.monotonic()
    report = run_cycle(context, policy, request=CycleRequest(trigger=Trigger.PERIODIC), dry_run=False).report
    return Cycle(
        at=at,
        evicted=sum(each.answered.outcome is Outcome.EVICTED for each in report.evictions),
        hot=len(hot),
        coolable=len(coolable),
        codes=codes_of(report, coolable),
        stopped=report.stopped.message if report.stopped else "",
        seconds=time.monotonic() - began,
    )


def codes_of(report: CycleReport, nodes: frozenset[str]) -> dict[str, int]:
    """Why these nodes stay hot: the code that keeps most of each one's load, or that it was refused as a whole by."""
    if report.stopped is not None:
        return {str(report.stopped.code): len(nodes)}
    found: Counter[str] = Counter()
    remaining = {each.name: str(each.code) for each in report.remaining}
    whole = {each.node: str(each.code) for each in report.refusals if not each.name}
    for name in nodes:
        found[remaining.get(name) or whole.get(name) or "not found"] += 1
    return dict(found)


@contextmanager
def daemon_of(lab: Lab, policy: RebalancerPolicy) -> Iterator[tuple[CycleContext, EvaluationLoop]]:
    """The context of a leader, and its evaluation loop."""
    place = FREE_OF_DISK if FREE_OF_DISK.is_dir() else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="day-bench-", dir=place)))
        settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}", kubeconfig=str(lab.write_kubeconfig(folder / "config"))
        )
        create_database(settings)
        records = stack.enter_context(records_of(settings, policy, lab.clock))
        ledger = records.ledger(clock=lab.clock)
        lease, client = HeldLease(), client_of(settings, stack)
        ledger.fence(lease.term)
        context = make_context(
            policy, settings, client, lab.clock, NullProgress(), stack, records=records, ledger=ledger
        )
        evaluation = EvaluationLoop(
            policy=policy,
            cluster=context.cluster,
            usage=context.usage,
            effect=records.effect(),
            forecasts=records.forecasts(),
            ledger=ledger,
            standard=None,  # its episodes are for reports, and no cycle reads them
            clock=lab.clock,
            quiet=True,  # assessments are in the report
        )
        context = replace(
            context,
            evictor=SteppedEvictor(context, lab),
            lease=lease,
            soft_taint_controller=SoftTaintController(taints=KubeNodeTaints(client=client, clock=lab.clock)),
            effect=records.effect(),
            feedback=lambda: evaluation.feedback,
        )
        yield context, evaluation
