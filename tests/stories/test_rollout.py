"""A StatefulSet in the middle of a rollout."""

from pathlib import Path
from typing import Any

from rebalancer.lab import Lab
from tests.stories.scenarios.stage import HIGH, a_machine, a_scenario, a_stage, burner, codes, service

TURN = 75.0


def status_of(lab: Lab) -> dict[str, Any]:
    with lab.cluster.lock:
        return dict(lab.cluster.store.get("statefulsets", "shop", "ledger")["status"])


def test_a_stateful_set_in_rollout_is_left_alone_and_moved_afterwards(tmp_path: Path) -> None:
    """Its pods are the only ones that could go from the hot node, and whatever rolls comes back there."""
    # instead of the scheduler's own: all nodes are one zone
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ledger = service("ledger", {"hot": 3}, kind="StatefulSet", start_seconds=200.0, topology_spread=(spread,))
    cluster = a_scenario(
        [a_machine(name, zone="z") for name in ("hot", "a", "b")],
        burner("burner", "hot", 10.2),
        burner("filler-a", "a", 2.0, cpu_request="6"),
        burner("filler-b", "b", 2.0, cpu_request="6"),
        ledger,
    )
    with a_stage(cluster, tmp_path) as stage:
        lab = stage.lab
        lab.clock.sleep(300)
        lab.cluster.roll_out("shop", "ledger", image="registry.example/shop/ledger:2.0")
        reports = []
        while True:
            lab.clock.sleep(TURN)
            if status_of(lab)["currentRevision"] == status_of(lab)["updateRevision"]:
                break
            reports.append(stage.cycle())
        assert len(reports) > 3
        seen = codes(reports, "ledger-")
        assert "RolloutInProgress" in seen
        # the pod that is being made isn't Ready, or was a moment ago
        assert seen <= {"RolloutInProgress", "NotReady", "TooYoung"}
        assert stage.log.evicted == []
        finished = lab.clock.now()
        while not stage.log.evicted:
            assert lab.clock.now() - finished < 900
            assert "hot" in lab.truth.hot(HIGH / 100)
            stage.turn()
        lab.clock.sleep(300)
        log = stage.log
    (moved,) = log.evicted
    assert moved.name.startswith("ledger-")
    assert [each.node for each in log if each.event == "bound" and each.name == moved.name][-1] in ("a", "b")
