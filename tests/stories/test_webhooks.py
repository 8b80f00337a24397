"""Admission webhooks that refuse evictions: one service is left alone, the cycle goes on with the others."""

from pathlib import Path

import pytest

from rebalancer.lab import Lab, Scenario
from rebalancer.lab.controlplane.owned import terminate
from rebalancer.lab.faults import Webhook
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import EVERY_NODE, EvictionBackoff
from tests.stories.scenarios.stage import (
    HIGH,
    START,
    TURN_SECONDS,
    Stage,
    a_run,
    a_scenario,
    a_stage,
    burner,
    codes,
    messages,
    service,
)

GUARD = Webhook(pods="shop/guarded-*", code=403, message="ask the owners")


def a_hot_node(big: str) -> Scenario:
    """The pods of `big` are the best candidates: each of them alone covers the excess."""
    return a_scenario(
        ("hot", "cool", "free"),
        burner("burner", "hot", 5.0),
        service(big, {"hot": 2}, cpu=3.0),
        service("web", {"hot": 3}, cpu=1.0),
    )


def backoffs(stage: Stage) -> list[EvictionBackoff]:
    return list(stage.ledger.backoffs())


def asked_for(stage: Stage, prefix: str) -> int:
    """Eviction requests for pods of this prefix, whatever the answer."""
    return sum(each.event == "eviction" and each.name.startswith(prefix) for each in stage.log)


@pytest.mark.parametrize(
    "webhook",
    [
        GUARD,
        Webhook(pods=GUARD.pods, code=400, message=GUARD.message),
        Webhook(pods=GUARD.pods, code=429, message=GUARD.message),
        Webhook(pods=GUARD.pods, fails=True),
    ],
    ids=["403", "400", "429", "can't be called"],
)
def test_a_webhook_that_refuses_one_service_does_not_end_the_cycle(webhook: Webhook, tmp_path: Path) -> None:
    with a_stage(a_hot_node("guarded"), tmp_path) as stage:
        stage.lab.faults.set(webhooks=(webhook,))
        first = stage.turn()
        assert first.interrupted is None
        # one of them was refused, and its sibling was not asked for
        assert asked_for(stage, "guarded-") == 1
        assert codes(first, "guarded-") == {
            "ServerWebhookFailed" if webhook.fails else "ServerWebhook",
            "WebhookBackoff",
        }
        gone = stage.log.evicted
        assert gone
        assert all(each.name.startswith("web-") for each in gone)


def test_the_backoff_grows_survives_a_restart_and_ends_when_the_webhook_admits_the_service(
    tmp_path: Path,
) -> None:
    cluster = a_scenario(("hot", "cool", "free"), burner("burner", "hot", 7.0), service("guarded", {"hot": 2}, cpu=3.0))
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        lab.faults.set(webhooks=(GUARD,))
        with a_run(lab, tmp_path) as stage:
            stage.turn()
            assert asked_for(stage, "guarded-") == 1
            (backoff,) = backoffs(stage)
            assert (backoff.service_identity, backoff.node, backoff.count) == ("shop/guarded", EVERY_NODE, 1)
            assert "ask the owners" in backoff.reason
            stage.turn()
        with a_run(lab, tmp_path) as stage:
            assert codes(stage.turn(), "guarded-") == {"WebhookBackoff"}
            assert all("ask the owners" in each for each in messages(stage.reports[-1], "guarded-"))
            assert asked_for(stage, "guarded-") == 1
            # five minutes have passed
            stage.turn()
            assert asked_for(stage, "guarded-") == 2
            (backoff,) = backoffs(stage)
            assert backoff.count == 2
            assert backoff.until - lab.clock.now() == pytest.approx(600, abs=5)
            lab.faults.clear()
            stage.turn(605)
            assert len(stage.log.evicted) == 1
            assert backoffs(stage) == []


KUBEVIRT = Webhook(
    pods="shop/vm-*",
    code=429,
    name="virt-launcher-eviction-interceptor.kubevirt.io",
    message='Eviction triggered evacuation of VMI "shop/vm"',
)


def test_an_evacuation_is_counted_and_in_flight_until_the_virtual_machine_has_moved(tmp_path: Path) -> None:
    with a_stage(a_hot_node("vm"), tmp_path) as stage:
        lab, ledger = stage.lab, stage.ledger
        lab.faults.set(webhooks=(KUBEVIRT,))
        report = stage.turn()
        assert report.interrupted is None
        (move,) = (each for each in report.evictions if each.pod.startswith("vm-"))
        assert (move.answered.outcome, move.answered.in_background) == (Outcome.EVICTED, True)
        assert (move.pod, True) in [(each.pod, each.answered.in_background) for each in ledger.open_evictions()]
        # its pod runs on and is left alone, and its node is not relieved a second time although it measures hot
        assert "hot" in lab.truth.hot(HIGH / 100)
        assert stage.turn().evictions == []
        assert asked_for(stage, move.pod) == 1
        assert move.pod in [each.pod for each in ledger.open_evictions()]
        with lab.cluster.lock:
            terminate(lab.cluster.store, lab.log, lab.cluster.store.get("pods", "shop", move.pod))
        stage.turn()
        assert move.pod not in [each.pod for each in ledger.open_evictions()]
        assert list(ledger.backoffs()) == []


def test_an_evacuation_that_moves_nothing_for_ten_minutes_is_closed(tmp_path: Path) -> None:
    with a_stage(a_hot_node("vm"), tmp_path) as stage:
        ledger = stage.ledger
        stage.lab.faults.set(webhooks=(KUBEVIRT,))
        report = stage.turn()
        (move,) = (each for each in report.evictions if each.pod.startswith("vm-"))
        stage.turn(600 - TURN_SECONDS)
        assert move.pod in [each.pod for each in ledger.open_evictions()]
        report = stage.turn(TURN_SECONDS + 5)
        assert move.pod not in [each.pod for each in ledger.open_evictions()]
        assert [note for note in report.notes if move.pod in note and "did not move it in time" in note]
        assert [(each.service_identity, each.node) for each in ledger.backoffs()] == [("shop/vm", "hot")]
