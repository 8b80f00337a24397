"""A cycle has one limit of planning time, for the simulation and the plan together."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rebalancer.constraints import admission
from rebalancer.constraints.admission import LedgerState
from rebalancer.cycle.context import MAX_PLANNING_SECONDS
from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan import planning
from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.cycle.plan.simulation import apply_taints
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.reason import Reason, Refusal
from tests.builders import NOW, a_policy, cluster, found_in, usage_of, view_of
from tests.planner.builders.plans import ANY_REPLICAS, cold, hot, single

STEP_SECONDS = 0.5


class SteppedTime:
    """The machine's clock: each reading takes a while, so thinking takes time and the test doesn't."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += STEP_SECONDS
        return self.now


class SlowApi:
    """Patches of nodes, each of which takes an hour."""

    def __init__(self, clock: SteppedTime) -> None:
        self._clock = clock

    def granted(self) -> bool:
        return self._hour()

    def put(self, node: str, *, value: str) -> bool:
        return self._hour()

    def take(self, node: str) -> bool:
        return self._hour()

    def _hour(self) -> bool:
        self._clock.now += 3_600.0
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedTime:
    stepped = SteppedTime()
    monkeypatch.setattr(planning, "time", stepped)
    return stepped


def session_of(pods: int, clock: SteppedTime) -> PlanningSession:
    """A hot node with so many small pods; a soft taint is worth having, so that the plan is simulated first."""
    nodes = [hot(used=15_900.0), *(cold(f"cold{number}", used=1_000.0) for number in range(3))]
    made = [single(f"p{number}", used=120.0, cpu=10.0) for number in range(pods)]
    policy = a_policy(**ANY_REPLICAS, planner={"worth": "Aggressive"})
    snapshot = cluster(nodes, made)
    usage = usage_of(snapshot, nodes, made)
    context: Any = SimpleNamespace(
        soft_taint_controller=SoftTaintController(taints=SlowApi(clock)), scheduler=SchedulerConfig(), own_pod=None
    )
    view = view_of(snapshot, usage, policy)
    seen = Observation(
        snapshot=snapshot,
        usage=usage,
        node_pools=view.node_pools,
        recent=(),
        ledger_state=LedgerState(),
        projection=view.projection,
        cpu=view.cpu,
        loads=view.base,
        now=NOW,
    )
    return PlanningSession(context=context, observation=seen, found=found_in(snapshot, usage, policy), policy=policy)


def planned(session: PlanningSession) -> tuple[int, set[Reason]]:
    """How many moves are planned after the simulation, and the reasons for the others."""
    report = CycleReport(id="1", cluster="test", trigger=Trigger.MANUAL, dry_run=False, started_at=NOW)
    taints = apply_taints(session, report)
    planner = session.planner(soft_tainted=taints.soft_tainted, cordoned=taints.cordoned)
    moves = 0
    while (move := planner.next_move()) is not None:
        planner.accept(move)
        moves += 1
    return moves, {each.code for each in planner.outcome.refusals()}


def test_the_simulation_and_the_plan_share_one_limit(clock: SteppedTime) -> None:
    session = session_of(200, clock)
    began = clock.now
    moves, reasons = planned(session)
    thought = (clock.now - began) % 3_600.0
    assert Reason.PLANNING_TIMEOUT in reasons  # there was more to think about than time
    assert moves > 0  # the simulation leaves time to the plan
    assert thought <= MAX_PLANNING_SECONDS + 4 * STEP_SECONDS


def test_calls_to_the_api_server_cost_no_planning_time(clock: SteppedTime) -> None:
    moves, reasons = planned(session_of(8, clock))
    assert clock.now > 3_600.0
    assert moves > 0
    assert Reason.PLANNING_TIMEOUT not in reasons


def test_a_candidates_guards_are_evaluated_once_for_all_plans_of_a_cycle(
    clock: SteppedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def guarded(pod: Pod, *args: Any, **more: Any) -> Refusal | None:
        asked.append(pod.name)
        return real(pod, *args, **more)

    real = admission.guarded
    monkeypatch.setattr(admission, "guarded", guarded)
    session = session_of(8, clock)
    no = np.zeros(len(session.observation.snapshot.nodes), dtype=np.bool_)
    refused = []
    for _ in range(2):
        planner = session.planner(soft_tainted=no, cordoned=no)
        while (move := planner.next_move()) is not None:
            planner.accept(move)
        refused.append(planner.outcome.refusals())
    assert sorted(asked) == sorted(f"p{number}" for number in range(8))
    assert refused[0] == refused[1]
