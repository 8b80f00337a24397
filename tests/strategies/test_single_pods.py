"""RemovePodsHavingTooManyRestarts, PodLifeTime and RemoveFailedPods: a single pod is all that they look at."""

from typing import Any

import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, PENDING, RUNNING, SUCCEEDED, PodStatus
from tests.builders import APod, a_node, a_pod, a_policy, plan_all, replicas
from tests.strategies.builders.finding import found_by, names_of, pods_found, strategy_policy

RESTARTS, LIFE, FAILURES = "RemovePodsHavingTooManyRestarts", "PodLifeTime", "RemoveFailedPods"
LOOP = PodStatus(containers=("CrashLoopBackOff",))
HOUR, DAY = 3600.0, 86_400.0


def found(name: str, pods: list[APod], **args: Any) -> list[str]:
    return pods_found(*found_by(name, [a_node("n"), a_node("other")], pods, args))


def pod(name: str, **fields: Any) -> APod:
    return a_pod(name, "n", owner="web", **fields)


# ---- restarts


@pytest.mark.parametrize(("restarts", "names"), [(99, []), (100, ["p"]), (1000, ["p"])])
def test_a_pod_is_found_from_the_threshold_on(restarts: int, names: list[str]) -> None:
    assert found(RESTARTS, [pod("p", restarts=restarts)]) == names


def test_the_pod_that_restarts_most_comes_first_and_its_reason_has_the_numbers() -> None:
    pods = [pod("few", restarts=7), pod("most", restarts=70), pod("calm", restarts=4)]
    made, snapshot = found_by(RESTARTS, [a_node("n")], pods, {"podRestartThreshold": 5})
    assert pods_found(made, snapshot) == ["most", "few"]
    assert made.findings[0].reason == "its containers restarted 70 times, 5 are too many"
    assert not made.findings[0].landing.elsewhere


@pytest.mark.parametrize(
    ("name", "fields", "args"),
    [(RESTARTS, {"restarts": 7}, {"podRestartThreshold": 5}), (LIFE, {"age": 2 * DAY}, {"maxPodLifeTime": "1d"})],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_pod_that_fits_on_its_own_node_alone_goes_unless_another_one_is_asked_for(
    name: str, fields: dict[str, Any], args: dict[str, Any], elsewhere: bool
) -> None:
    policy = strategy_policy(name, {**args, "otherNode": elsewhere}, guards={"minReplicas": 1})
    outcome = plan_all([a_node("n"), a_node("other", cpu=100.0)], [pod("p", cpu=1_000, **fields)], policy)
    assert outcome.pods == ([] if elsewhere else ["p"])
    assert outcome.refusals == ({"p": "NoTargetNode"} if elsewhere else {})


@pytest.mark.parametrize(("counted", "names"), [(False, []), (True, ["p"])])
def test_init_containers_count_when_asked_for(counted: bool, names: list[str]) -> None:
    pods = [pod("p", restarts=3, init_restarts=3)]
    assert found(RESTARTS, pods, podRestartThreshold=6, includingInitContainers=counted) == names


def test_states_narrow_it_down() -> None:
    pods = [pod("loops", restarts=9, status=LOOP), pod("runs", restarts=9)]
    assert found(RESTARTS, pods, podRestartThreshold=5, states=["CrashLoopBackOff"]) == ["loops"]
    assert found(RESTARTS, pods, podRestartThreshold=5, states=["Running"]) == ["loops", "runs"]


def test_a_crash_looping_pod_goes_although_its_service_is_not_healthy() -> None:
    nodes = [a_node("n"), a_node("other")]
    pods = [pod("loops", restarts=200, ready=False, status=LOOP, used=10.0), *replicas("web", {"other": 1}, used=10.0)]
    outcome = plan_all(nodes, pods, strategy_policy(RESTARTS))
    assert outcome.pods == ["loops"]


@pytest.mark.parametrize(
    ("pods", "refusals"),
    [
        ([pod("only", restarts=200, used=10.0)], {"only": "MinReplicas"}),
        (
            [pod("only", restarts=200, used=10.0), *replicas("web", {"other": 2}, used=10.0, ready=False)],
            {"only": "OwnerNotHealthy"},
        ),
        ([a_pod("bare", "n", restarts=200, ready=False, used=10.0)], {"bare": "BarePod"}),
    ],
    ids=["ready again", "the last one that is ready", "kept for another reason"],
)
def test_a_pod_that_is_ready_again_or_kept_for_another_reason_is_protected(
    pods: list[APod], refusals: dict[str, str]
) -> None:
    outcome = plan_all([a_node("n"), a_node("other")], pods, strategy_policy(RESTARTS))
    assert (outcome.pods, outcome.refusals) == ([], refusals)


# ---- life time


@pytest.mark.parametrize(("age", "names"), [(DAY, []), (DAY + 1, ["p"])])
def test_a_pod_is_found_when_it_is_older(age: float, names: list[str]) -> None:
    assert found(LIFE, [pod("p", age=age)], maxPodLifeTime="1d") == names


def test_the_oldest_comes_first_and_the_default_is_a_week() -> None:
    pods = [
        *(pod(name, age=age * DAY) for name, age in (("b", 8), ("a", 8), ("old", 9), ("young", 6))),
        a_pod("oldest", "other", owner="web", age=10 * DAY),
    ]
    made, snapshot = found_by(LIFE, [a_node("n"), a_node("other")], pods)
    assert [names_of(each, snapshot) for each in made.findings] == [["oldest"], ["old", "a", "b"]]
    assert [each.reason for each in made.findings] == [
        "1 pod is older than 7d, the oldest 10d",
        "3 pods are older than 7d, the oldest 9d",
    ]
    assert not made.findings[0].broken


def test_only_pods_that_do_not_run_well_are_broken_and_only_when_states_are_named() -> None:
    pods = [pod("waits", age=9 * DAY, phase=PENDING, ready=False), pod("runs", age=8 * DAY)]
    made, snapshot = found_by(LIFE, [a_node("n")], pods, {"states": ["Pending", "Running"]})
    assert [(names_of(each, snapshot), each.broken) for each in made.findings] == [(["waits"], True), (["runs"], False)]
    made, _ = found_by(LIFE, [a_node("n")], pods)
    assert [each.broken for each in made.findings] == [False]


def test_finished_and_leaving_pods_are_left_alone_unless_their_state_is_named() -> None:
    pods = [
        pod("done", age=9 * DAY, phase=SUCCEEDED),
        pod("failed", age=9 * DAY, phase=FAILED),
        pod("leaving", age=9 * DAY, terminating=True),
    ]
    assert found(LIFE, pods) == []
    assert found(LIFE, pods, states=["Succeeded"]) == ["done"]


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["Pending"], ["waits"]),
        (["ImagePullBackOff"], ["waits"]),
        (["Running"], ["runs"]),
        (["NodeAffinity"], ["rejected"]),
        (["Evicted"], []),
    ],
)
def test_a_state_is_a_phase_a_reason_or_why_a_container_waits(states: list[str], names: list[str]) -> None:
    pods = [
        pod("waits", age=9 * DAY, phase=PENDING, ready=False, status=PodStatus(containers=("ImagePullBackOff",))),
        pod("runs", age=9 * DAY, phase=RUNNING),
        pod("rejected", age=9 * DAY, phase=FAILED, status=PodStatus(reason="NodeAffinity")),
    ]
    assert found(LIFE, pods, states=states) == names


def test_states_of_init_containers_count_when_asked_for() -> None:
    pods = [pod("p", age=9 * DAY, phase=PENDING, status=PodStatus(init_containers=("ImagePullBackOff",)))]
    assert found(LIFE, pods, states=["ImagePullBackOff"]) == []
    assert found(LIFE, pods, states=["ImagePullBackOff"], includingInitContainers=True) == ["p"]


def test_an_old_pod_may_come_back_to_its_node() -> None:
    pods = [*replicas("web", {"n": 2}, used=100.0, age=9 * DAY)]
    outcome = plan_all([a_node("n")], pods, strategy_policy(LIFE))
    assert sorted(outcome.moves) == [("web-0", "n", "n"), ("web-1", "n", "n")]


# ---- failed pods


def failed(name: str, **fields: Any) -> APod:
    return pod(name, **{"phase": FAILED, "ready": False, "age": 2 * HOUR, **fields})


def test_failed_pods_are_found_oldest_first_with_why_they_failed() -> None:
    pods = [
        failed("b", status=PodStatus(reason="Evicted")),
        failed("a", age=3 * HOUR, status=PodStatus(containers=("Error",), exit_codes=(1,))),
        pod("runs", age=9 * HOUR),
    ]
    made, snapshot = found_by(FAILURES, [a_node("n")], pods)
    assert pods_found(made, snapshot) == ["a", "b"]
    assert [each.reason for each in made.findings] == ["failed (Error), 3h old", "failed (Evicted), 2h old"]
    assert all(each.broken for each in made.findings)


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({"reasons": ["Evicted"]}, ["evicted"]),
        ({"reasons": ["OOMKilled"]}, ["killed"]),
        ({"exitCodes": [137]}, ["killed"]),
        ({"exitCodes": [1]}, []),
        ({"exitCodes": [1], "includingInitContainers": True}, ["init"]),
        ({"reasons": ["Evicted"], "exitCodes": [137]}, []),
        ({"minPodLifetime": "3h"}, []),
        ({"excludeOwnerKinds": ["ReplicaSet"]}, []),
        ({"excludeOwnerKinds": ["Job"]}, ["evicted", "init", "killed"]),
    ],
)
def test_failed_pods_are_chosen_by_reason_exit_code_age_and_owner(args: dict[str, Any], names: list[str]) -> None:
    pods = [
        failed("evicted", status=PodStatus(reason="Evicted")),
        failed("init", status=PodStatus(init_containers=("Error",), init_exit_codes=(1,))),
        failed("killed", status=PodStatus(containers=("OOMKilled",), exit_codes=(137,))),
    ]
    assert found(FAILURES, pods, **args) == names


def test_a_failed_pod_goes_whatever_its_service_looks_like_and_lands_nowhere() -> None:
    pods = [failed("dead")]
    owner = Owner(kind="ReplicaSet", namespace="shop", name="web", uid="u", desired=1, ready=0)
    nodes = [a_node("n")]
    from tests.builders import cluster, planner_for, usage_of

    made = cluster(nodes, pods, owners=[owner])
    planner = planner_for(made, usage_of(made, nodes, pods), strategy_policy(FAILURES))
    move = planner.next_move()
    assert move is not None
    assert (move.pod, move.target_nodes, move.target_node) == ("dead", (), "")
    planner.accept(move)
    assert planner.next_move() is None


def test_a_failed_job_pod_is_kept_where_the_policy_keeps_job_pods() -> None:
    pods = [failed("dead", owner_kind="Job")]
    outcome = plan_all([a_node("n")], pods, strategy_policy(FAILURES))
    assert outcome.refusals == {"dead": "JobPod"}


# ---- all of them


@pytest.mark.parametrize("name", [RESTARTS, LIFE, FAILURES])
def test_pods_of_other_pools_and_namespaces_are_left_alone(name: str) -> None:
    def bad(pod_name: str, node: str, **fields: Any) -> APod:
        phase = FAILED if name == FAILURES else RUNNING
        return a_pod(pod_name, node, owner="web", restarts=500, age=30 * DAY, phase=phase, **fields)

    nodes = [a_node("n"), a_node("foreign", labels={"pool": "none"})]
    pods = [bad("here", "n"), bad("there", "foreign"), bad("data", "n", namespace="data"), bad("unbound", "")]
    made, snapshot = found_by(name, nodes, pods, {"namespaces": {"include": ["shop"]}})
    assert pods_found(made, snapshot) == ["here"]
    assert a_policy().pools[0].name == made.findings[0].pool
