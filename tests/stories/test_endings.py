"""However a run ends, no taint of ours stays once it, or the next one, is over; those of others do."""

import signal
import time
from pathlib import Path

import pytest

from rebalancer.cycle.evict.remeasure import remeasure
from rebalancer.lab import Lab
from tests.e2e.scenarios import the_lab
from tests.programs.cli import Running, begin, policy_for, rebalancer, write_policy
from tests.stories.readers import Log, ours_on, taints_on
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service

WARM = "node-4"
"""Where the first replacement of the plan would go: none of its service is there."""
OTHERS = ("example.com/maintenance", "soon", "PreferNoSchedule")
SECONDS_AT_MOST = 60.0


def taint_of_others(lab: Lab, name: str) -> None:
    key, value, effect = OTHERS
    lab.cluster.taint(name, key, value=value, effect=effect)


def begin_a_run(lab: Lab, folder: Path) -> Running:
    """A real process; back when it is in the middle of its plan: nodes are tainted, the first eviction is on its
    way. A taint of others is on the same node."""
    lab.faults.set(eviction_delay_seconds=20.0)
    policy = write_policy(folder, policy_for(lab.prometheus_url))
    process = begin("run", "--once", "-f", policy, "--kubeconfig", folder / "kubeconfig", cwd=folder)
    until = time.monotonic() + SECONDS_AT_MOST
    while not lab.log.entries("terminating") and time.monotonic() < until:
        time.sleep(0.05)
    assert WARM in ours_on(lab)
    taint_of_others(lab, WARM)
    return process


def run_again(lab: Lab, folder: Path, *more: str) -> None:
    """Another process, some time after the first one's Lease has run out."""
    lab.faults.clear()
    store = lab.cluster.store
    with lab.cluster.lock:
        lease = store.get("leases", "kube-system", "rebalancer")
        store.change("leases", lease, lambda new: new["spec"].update(holderIdentity=""))
    result = rebalancer(
        "run", "--once", *more, "-f", folder / "policy.yaml", "--kubeconfig", folder / "kubeconfig", cwd=folder
    )
    assert result.code == 0, result.err


@pytest.mark.parametrize("how", [[], ["--no-wait"]], ids=["wait", "no-wait"])
def test_after_a_kill_in_the_middle_of_a_plan_the_next_run_clears_up(tmp_path: Path, how: list[str]) -> None:
    with the_lab(tmp_path, warm=WARM) as lab:
        process = begin_a_run(lab, tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ours_on(lab) == {WARM: "no-room"}
        run_again(lab, tmp_path, *how)
        assert ours_on(lab) == {}
        assert taints_on(lab, WARM) == [OTHERS]
        assert len(Log.of(lab).evicted) == 1


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_in_the_middle_of_a_plan_clears_up(tmp_path: Path, sign: signal.Signals) -> None:
    with the_lab(tmp_path, warm=WARM) as lab:
        process = begin_a_run(lab, tmp_path)
        process.send_signal(sign)
        lab.faults.clear()
        assert process.wait(SECONDS_AT_MOST) == 128 + sign
        assert ours_on(lab) == {}
        assert taints_on(lab, WARM) == [OTHERS]


def test_a_run_that_ends_as_it_should_has_cleared_up(tmp_path: Path) -> None:
    everywhere = dict.fromkeys(("hot", "a", "b"), 1)
    cluster = a_scenario(
        everywhere,
        burner("burner", "hot", 10.5, cpu_request="100m"),
        service("web", everywhere),
        service("api", everywhere),
    )
    with a_stage(cluster, tmp_path) as stage:
        lab = stage.lab
        taint_of_others(lab, "a")
        report = stage.turn()
        assert len(Log.of(lab).evicted) == 2
        assert ours_on(lab).keys() == report.soft_tainted.keys() == {"hot"}
        taint_of_others(lab, "hot")
        remeasure(stage.world, stage.policy, report)
        # until the replacements have landed and are measured
        assert ours_on(lab).keys() == {"hot"}
        ready = [each.at for each in lab.log.entries("ready")]
    # the run is over; the lab's log and store are still there
    assert len(ready) == 2
    assert ours_on(lab) == {}
    assert taints_on(lab, "hot") == taints_on(lab, "a") == [OTHERS]
    assert [each.end for each in Log.of(lab).stints] == [lab.clock.now()]
