"""What became of earlier evictions decides later ones: a pool whose nodes don't cool after them is left alone."""

from dataclasses import replace
from pathlib import Path

from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.records.effect import Outcome, Step
from rebalancer.policy import RebalancerPolicy
from tests.stories.oracles.effect import Rules
from tests.stories.readers import Log
from tests.stories.scenarios.effect import SETTLE_SECONDS, Daemon, an_effect_stage, heat, machines, services

PERIODIC = CycleRequest(trigger=Trigger.PERIODIC)


def impatient(policy: RebalancerPolicy) -> RebalancerPolicy:
    """One assessment is enough for the brake."""
    document = policy.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["safety"]["circuitBreaker"] = {"effect": {"sampleSize": 1, "minEffectiveness": 30}}
    return RebalancerPolicy.model_validate(document)


def aftermath_of(daemon: Daemon) -> EvaluationLoop:
    world = daemon.world
    assert world.ledger is not None
    return EvaluationLoop(
        policy=daemon.policy,
        cluster=world.cluster,
        usage=world.usage,
        effect=daemon.effect,
        forecasts=daemon.forecasts,
        ledger=world.ledger,
        standard=daemon.reader,
        clock=daemon.lab.clock,
    )


def test_a_pool_whose_nodes_do_not_cool_is_left_alone_for_a_while(tmp_path: Path) -> None:
    with an_effect_stage(
        tmp_path,
        machines("one", "hot", "cool", "free"),
        [*services("one"), *services("one", prefix="two")],
        {"one": Rules(evictions_at_most=3)},
        reads=False,
    ) as stage:
        stage.policy = impatient(stage.policy)
        with stage.daemon() as daemon:
            aftermath = aftermath_of(daemon)
            world = replace(daemon.world, feedback=lambda: aftermath.feedback)
            aftermath.turn()
            assert aftermath.feedback is not None
            assert aftermath.feedback.open_breakers == {}
            heat(stage.lab, "one-hot", cores=7.0)
            for _ in range(6):
                stage.lab.clock.sleep(60.0)
                report = run_cycle(world, stage.policy, request=PERIODIC, dry_run=False).report
                if report.evictions:
                    break
            moved = len(Log.of(stage.lab).evicted)
            assert moved, (report.nodes, stage.lab.truth.node_cpu_share())
            # newcomers take the room, and more
            heat(stage.lab, "one-hot", cores=4.8, cpu_request="100m", name="more")
            stage.lab.clock.sleep(SETTLE_SECONDS + 60.0)
            aftermath.turn()
            (made,) = [each for each in daemon.effect.assessments(0.0, stage.lab.clock.now()) if each.assessed_at]
            assert (made.step, made.outcome) == (Step.SETTLED, Outcome.NEW_PODS_ARRIVED)
            assert list(aftermath.feedback.open_breakers) == ["one"]
            stage.lab.clock.sleep(400.0)
            report = run_cycle(world, stage.policy, request=PERIODIC, dry_run=False).report
            assert report.findings != []
            assert {str(each.code) for each in report.refusals if each.namespace == "shop"} == {"CircuitBreakerOpen"}, (
                report.refusals
            )
            assert len(Log.of(stage.lab).evicted) == moved
            # it lets go with time
            stage.lab.clock.sleep(3600.0)
            aftermath.turn()
            assert aftermath.feedback.open_breakers == {}
