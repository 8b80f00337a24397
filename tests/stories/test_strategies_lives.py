"""Pods that have lived long enough: too many restarts, too old, or failed."""

from collections import Counter
from pathlib import Path

from rebalancer.lab import Breaks
from rebalancer.lab.scenarios.steps import EndContainers
from tests.stories.oracles.violations import DAY, TOO_MANY, lying_around, restless, running, too_old, uids
from tests.stories.scenarios.repairing import NEVER_EVICT, NO_BUDGET, OPTED_OUT, a_repair, strategy
from tests.stories.scenarios.stage import a_machine, a_scenario, burner, service

ONE_AT_A_TIME = {"max_unavailable": 1}


# ---- RemovePodsHavingTooManyRestarts


def test_pods_that_restart_too_often_are_replaced_once(tmp_path: Path) -> None:
    here = Breaks(after_seconds=30.0, nodes=("n1",))
    cluster = a_scenario(
        [a_machine(f"n{number}") for number in range(1, 7)],
        service("shaky", {"n1": 1, "n2": 3}, restarts=150, breaks=here, pdb=ONE_AT_A_TIME),
        # its only pod does no work, so there is nothing to lose
        service("single", {"n1": 1}, restarts=200, breaks=here),
        service("steady", {"n1": 1, "n3": 1}, restarts=TOO_MANY - 1),
        service("kept", {"n3": 2}, restarts=500, annotations=NEVER_EVICT),
        service("frozen", {"n4": 2}, restarts=500, pdb={"max_unavailable": 0}),
        service("bare", {"n5": 1}, restarts=500, kind="Pod"),
    )
    restarts = strategy("RemovePodsHavingTooManyRestarts", podRestartThreshold=TOO_MANY)
    with a_repair(cluster, tmp_path, restless, restarts) as repair:
        assert restless(repair.lab) == {"shaky", "single", "kept", "frozen", "bare"}
        repair.repairs(
            {"shaky": 4, "single": 1}, stuck=("kept", "frozen", "bare"), unmoved=("steady", "kept", "frozen", "bare")
        )
        assert (repair.refused("kept"), repair.refused("frozen")) == (OPTED_OUT, NO_BUDGET)


# ---- PodLifeTime


def test_old_pods_are_replaced_by_young_ones_once(tmp_path: Path) -> None:
    old = {"age_seconds": 10 * DAY}
    cluster = a_scenario(
        ("n1", "n2", "n3", "n4", "n5", "hot"),
        service("web", {"n1": 3, "n2": 2}, pdb=ONE_AT_A_TIME, **old),
        service("mail", {"n2": 1, "n3": 1}, kind="StatefulSet", **old),
        service("young", {"n3": 2}, age_seconds=6 * DAY),
        service("kept", {"n4": 2}, annotations=NEVER_EVICT, **old),
        service("frozen", {"n4": 2}, pdb={"max_unavailable": 0}, **old),
        service("single", {"n5": 1}, **old),
        # emptiest by requests, and hot in fact
        burner("burner", "hot", 13.0),
    )
    with a_repair(cluster, tmp_path, too_old, strategy("PodLifeTime", maxPodLifeTime="7d")) as repair:
        assert too_old(repair.lab) == {"web", "mail", "kept", "frozen", "single"}
        repair.repairs(
            {"web": 5, "mail": 2}, stuck=("kept", "frozen", "single"), unmoved=("young", "kept", "frozen", "single")
        )
        assert "hot" not in {each.target for each in repair.moved()}
        assert repair.fewest_ready("web") == 4
        assert (repair.refused("kept"), repair.refused("frozen")) == (OPTED_OUT, NO_BUDGET)
        assert repair.refused("single") == {"MinReplicas"}


# ---- RemoveFailedPods


def test_failed_pods_are_cleared_away_and_nothing_comes_in_their_place(tmp_path: Path) -> None:
    evicted_by_kubelet = Breaks(after_seconds=0.0, exit_code=137, restarts=False, pod_reason="Evicted")

    def fails(name: str, node: str = "n1", how: Breaks = evicted_by_kubelet) -> EndContainers:
        return EndContainers(at_seconds=60.0, workload=name, namespace="shop", node=node, how=how)

    cluster = a_scenario(
        [a_machine(f"n{number}") for number in range(1, 7)],
        service("web", {"n1": 3, "n2": 1}, pdb={"max_unavailable": 0}),
        service("kept", {"n1": 1, "n3": 1}, annotations=NEVER_EVICT),
        # another reason than the one that is asked for
        service("other", {"n1": 1, "n4": 1}),
        service("batch", {"n1": 1}, kind="Job"),
        steps=[
            fails("web"),
            fails("kept"),
            fails("other", how=Breaks(after_seconds=0.0, restarts=False)),
            fails("batch"),
        ],
    )
    failed = strategy("RemoveFailedPods", reasons=["Evicted"], minPodLifetime="1h")
    with a_repair(cluster, tmp_path, lying_around, failed) as repair:
        repair.until_only("kept", "other", "batch")
        gone = repair.log().evicted
        assert Counter(each.name.split("-")[0] for each in gone) == {"web": 3}
        web = uids(running(repair.lab, "web"))
        repair.then_nothing_moves("kept", "other", "batch")
        # its owner had made new ones long before, and they stay
        assert uids(running(repair.lab, "web")) == web
        assert len(web) == 4
        created = [each.at for each in repair.log() if each.event == "created"]
        assert max(created) < min(each.at for each in gone)
        repair.the_api_server_refused_nothing()
        assert (repair.refused("kept"), repair.refused("batch")) == (OPTED_OUT, {"JobPod"})
        assert repair.refused("other") == set()
