"""Evictions in flight end by themselves, so that one service's trouble stops that service only."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from tests.stories.scenarios.stage import NO_COOLDOWNS, Stage, a_scenario, a_stage, burner, codes, service

SAFETY = {
    "cooldowns": NO_COOLDOWNS,
    "circuitBreaker": {"lateInPool": 1, "lateInCluster": 1},
    "inFlight": {"startUp": "1m", "margin": "30s", "maxLate": "20m"},
}
"""One late replacement stops the cluster."""
PAST_THE_DEADLINE = 150.0
"""Grace period, start-up and margin are 120 s."""


def two_services() -> Any:
    """`web` has the pod that covers the excess best; `api` still has to go after it."""
    return a_scenario(
        ("hot", "cool", "free", "other"),
        burner("burner", "hot", 8.4),
        service("web", {"hot": 1, "other": 2}, cpu=3.0),
        service("api", {"hot": 3, "other": 1}, cpu=1.5),
    )


def make_unready(lab: Lab, prefix: str, *, node: str) -> None:
    """A readiness probe of one pod fails from now on."""

    def apply(pod: dict[str, Any]) -> None:
        for condition in pod["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "False"

    with lab.cluster.lock:
        pods = lab.cluster.store.sorted("pods")
        found = (each for each in pods if each["metadata"]["name"].startswith(prefix))
        lab.cluster.store.change("pods", next(each for each in found if each["spec"].get("nodeName") == node), apply)


def first_move(stage: Stage) -> str:
    (move,) = stage.turn().evictions
    assert move.pod.startswith("web-")
    return move.pod


def test_a_sibling_that_is_not_ready_stops_neither_pool_nor_cluster(tmp_path: Path) -> None:
    with a_stage(two_services(), tmp_path, safety=SAFETY, limits={"perCycle": 1}) as stage:
        first_move(stage)
        make_unready(stage.lab, "web-", node="other")
        report = stage.turn(PAST_THE_DEADLINE)
        assert "CircuitBreakerOpen" not in codes(report)
        assert [each.pod.rpartition("-")[0][:3] for each in report.evictions] == ["api"]
        assert "web" not in {each.service.name for each in stage.ledger.open_evictions()}


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_replacement_that_never_starts_stops_the_pool_for_a_stated_time_or_until_it_is_resolved(
    by_hand: bool, tmp_path: Path
) -> None:
    with a_stage(two_services(), tmp_path, safety=SAFETY, limits={"perCycle": 1}) as stage:
        ledger = stage.ledger
        pod = first_move(stage)
        (open_one,) = ledger.open_evictions()
        stage.lab.clock.sleep(60)
        with stage.lab.cluster.lock:
            replacement = open_replacement(stage.lab)
        make_unready(stage.lab, replacement, node=node_of(stage.lab, replacement))
        stopped = stage.turn(PAST_THE_DEADLINE - 60)
        assert (stopped.evictions, "CircuitBreakerOpen" in codes(stopped, "api-")) == ([], True)
        if by_hand:
            assert open_one.reserved.record is not None
            ledger.close(open_one.reserved.record, by="ana", reason="its image is gone for good")
            report = stage.turn()
        else:
            assert stage.turn(600).evictions == []
            report = stage.turn(600)
            assert [note for note in report.notes if pod in note and "20m after the deadline" in note]
        assert [each.service.name for each in report.evictions] == ["api"]
        # its own service is left alone: it is short of a replica
        assert codes(report, "web-") <= {"OwnerNotHealthy", "NotReady", "TooYoung"}


def open_replacement(lab: Lab) -> str:
    """Name of the newest pod of `web`."""
    pods = [each for each in lab.cluster.store.sorted("pods") if each["metadata"]["name"].startswith("web-")]
    return str(max(pods, key=lambda each: each["metadata"]["creationTimestamp"])["metadata"]["name"])


def node_of(lab: Lab, pod: str) -> str:
    with lab.cluster.lock:
        return str(lab.cluster.store.get("pods", "shop", pod)["spec"]["nodeName"])
