"""The executor of `make bench ONLY=plan` places pods as kube-scheduler does, and its lower bound is one."""

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bench.plan.bench import Output, options, overall_figures
from bench.plan.bound import lower_bound, movable_pods
from bench.plan.cluster import GRACE_SECONDS, START_UP_SECONDS, Cluster, Services, Thresholds
from bench.plan.families import FAMILIES, NOW, deployments, machines, plain, policy_of
from bench.plan.ports import ClusterPorts, context_over
from bench.plan.rounds import Result, carry_out
from bench.plan.scheduler import Machines, Request, Scheduler, nodes_to_find
from rebalancer.cycle.run import run_cycle
from rebalancer.model.reason import Refusal
from rebalancer.placement.landing.model import PlacementModel

ROOT = Path(__file__).parents[2]
GIB = 2.0**30
SMALL = ("tiny", "least", "even", "skewed", "tight", "small", "large", "pools", "full", "batch")


# ---- the scheduler


@pytest.mark.parametrize(
    ("nodes", "wanted"), [(99, 99), (100, 100), (240, 117), (300, 144), (5_000, 500), (6_000, 300)]
)
def test_it_looks_for_as_many_feasible_nodes_as_the_real_one(nodes: int, wanted: int) -> None:
    assert nodes_to_find(nodes) == wanted


def test_its_scores_are_those_of_the_sources() -> None:
    made = Machines(
        cpu_capacity=np.full(2, 4_000.0),
        cpu_allocatable=np.full(2, 4_000.0),
        memory_allocatable=np.full(2, 8 * GIB),
        pods_allocatable=np.full(2, 110.0),
        pool=np.zeros(2, dtype=np.int32),
        zone=np.full(2, -1, dtype=np.int32),
        image_bytes=np.array([500.0 * 2**20]),
        images_there=np.array([[True, False]]),
    )
    scheduler = Scheduler(made, np.random.default_rng(1))
    one = np.array([1], dtype=np.int32)
    scheduler.hold(np.array([0], dtype=np.int32), one, np.array([1_000.0]), np.array([2 * GIB]))
    scheduler.soft_tainted[1] = True
    scores = scheduler.scores(Request(service=1, cpu=1_000.0, memory=GIB, image=0), np.array([0, 1]))
    # first node: (50 + 62) / 2 = 56; balance 100 -> 93, so 50 + floor(43 / 2) = 71; not tainted 3 * 100; spreading
    # 1 * ln(4) + 2 against 2, rounded 3 and 2: 2 * floor(200 / 3 * 1); the image: 100 * (250 - 23) / 977
    # second: (75 + 87) / 2 = 81; balance 100 -> 93, so 71; tainted; 2 * 100; no image
    assert scores.tolist() == [56 + 71 + 300 + 2 * 66 + 23, 81 + 71 + 0 + 2 * 100 + 0]


@pytest.mark.parametrize("name", ["skewed", "pools", "batch"])
def test_below_a_hundred_nodes_it_chooses_among_the_nodes_that_the_placement_model_expects(name: str) -> None:
    cluster = FAMILIES[name].make(3)
    ports = ClusterPorts(cluster)
    ports.put("node-00003", value="hot")
    snapshot = ports.snapshot()
    soft_tainted = np.arange(len(snapshot.nodes)) == 3
    chosen = np.random.default_rng(1).choice(np.flatnonzero(lower_bound(cluster).hot[cluster.node]), 12, replace=False)
    for index in chosen.tolist():
        pod = snapshot.pod(index)
        if pod.owner is None or pod.owner.kind == "Job":
            continue
        likely = PlacementModel(snapshot, soft_tainted=soft_tainted).landings(pod)
        assert not isinstance(likely, Refusal)
        fresh = FAMILIES[name].make(3)
        fresh.scheduler.soft_tainted[3] = True
        fresh.evict(index)
        assert int(fresh.node[-1]) in likely.nodes.tolist()


def test_above_a_hundred_nodes_its_landings_are_distributed_as_the_placement_model_expects() -> None:
    cluster = FAMILIES["sampled"].make(1)
    snapshot = ClusterPorts(cluster).snapshot()
    index = int(np.flatnonzero(movable_pods(cluster))[0])
    likely = PlacementModel(snapshot).landings(snapshot.pod(index))
    assert not isinstance(likely, Refusal)
    service, node = int(cluster.service[index]), int(cluster.node[index])
    request = Request(
        service=service,
        cpu=float(cluster.services.cpu_request[service]),
        memory=float(cluster.services.memory_request[service]),
    )
    trials, counts = 300, np.zeros(len(snapshot.nodes))
    for trial in range(trials):
        scheduler = Scheduler(cluster.machines, np.random.default_rng(trial))
        bound = cluster.node >= 0
        of = cluster.service[bound]
        requests = cluster.services.cpu_request[of], cluster.services.memory_request[of]
        scheduler.hold(cluster.node[bound], of, *requests)
        scheduler.terminate(service, node)
        place = scheduler.place(request)
        assert place is not None
        counts[place] += 1
    expected = np.zeros(len(snapshot.nodes))
    expected[likely.nodes] = likely.shares
    # the same distribution, by total variation: 300 drawn from 11 nodes are about 0.05 apart
    assert np.abs(counts / trials - expected).sum() / 2 < 0.06


# ---- the executor


def two_nodes(*, services: Services | None = None, cores: float = 10.0) -> Cluster:
    """One node at 80% with pods of 3, 2, 2 and 1 cores, one at 10%; each pod of a service of two replicas."""
    cpu = np.array([3_000.0, 2_000, 2_000, 1_000, 250, 250, 250, 250])
    return Cluster(
        machines=machines(2, cores=cores),
        services=services or deployments(np.full(4, 500.0)),
        service=np.array([0, 1, 2, 3, 0, 1, 2, 3], dtype=np.int32),
        node=np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int32),
        cpu=cpu,
        overhead=np.zeros(2),
        thresholds=Thresholds(),
        now=NOW,
        seed=1,
    )


def test_the_cpu_moves_with_the_pod_and_requests_stay_until_it_has_ended() -> None:
    cluster = two_nodes()
    cluster.scheduler.soft_tainted[0] = True
    cluster.evict(0)
    assert cluster.node[-1] == 1
    assert cluster.load.tolist() == [5_000.0, 4_000.0]
    assert cluster.scheduler.free[0].tolist() == [9_800.0 - 2_000, 9_800.0 - 2_500]
    assert cluster.in_flight()
    cluster.advance(GRACE_SECONDS + START_UP_SECONDS[1])
    assert cluster.scheduler.free[0].tolist() == [9_800.0 - 1_500, 9_800.0 - 2_500]
    assert not cluster.in_flight()
    assert cluster.healthy().tolist() == [2, 2, 2, 2]
    assert (cluster.landings.placed, cluster.landings.returned, cluster.landings.over_target) == (1, 0, 0)


def test_a_replacement_that_returns_is_counted_and_one_that_fits_nowhere_waits() -> None:
    cluster = two_nodes(services=deployments(np.full(4, 2_000.0)))
    cluster.scheduler.cordoned[1] = True
    cluster.evict(0)
    assert cluster.node[-1] == -1
    cluster.advance(GRACE_SECONDS)
    assert cluster.node[-1] == 0
    assert (cluster.landings.returned, cluster.landings.over_target) == (1, 1)
    assert cluster.landings.made_hot == set()


def test_a_landing_over_the_target_and_a_node_made_hot_are_counted() -> None:
    cluster = two_nodes(cores=10.0)
    cluster.scheduler.cordoned[0] = True
    for pod in range(4):
        cluster.evict(pod)
    assert cluster.load.tolist() == [0.0, 9_000.0]
    assert cluster.landings.over_target == 2
    assert cluster.landings.made_hot == {1}


def test_the_executor_keeps_budgets() -> None:
    cluster = two_nodes(services=deployments(np.full(4, 500.0), max_unavailable=np.array([1, 0, -1, 2])))
    assert cluster.disruptions_allowed().tolist() == [1, 0, -1, 2]
    assert [cluster.budget_allows(pod) for pod in range(4)] == [True, False, True, True]
    cluster.evict(0)
    assert not cluster.budget_allows(4)


# ---- the lower bound


def test_the_lower_bound_is_the_least_number_of_movable_pods_that_cover_the_excess() -> None:
    for name in ("even", "tiny", "full"):
        cluster = FAMILIES[name].make(2)
        bound, movable, load = lower_bound(cluster), movable_pods(cluster), cluster.load
        target = cluster.thresholds.target * cluster.machines.cpu_capacity
        assert bound.hot.any()
        for node in np.flatnonzero(bound.hot).tolist():
            pods = cluster.cpu[movable & (cluster.node == node)].tolist()
            excess, fewest = float(load[node] - target[node]), int(bound.fewest[node])
            assert not any(sum(each) >= excess for each in combinations(pods, fewest - 1))
            assert any(sum(each) >= excess for each in combinations(pods, fewest))


def test_pods_that_may_not_go_and_nodes_without_room_leave_a_node_hot() -> None:
    assert lower_bound(two_nodes()).fewest.tolist() == [1, 0]
    assert lower_bound(two_nodes()).coolable.tolist() == [True, False]
    kept = deployments(np.full(4, 500.0), kind=("Job", "Deployment", "Deployment", "Deployment"))
    assert lower_bound(two_nodes(services=kept)).fewest.tolist() == [1, 0]
    kept = deployments(np.full(4, 500.0), max_unavailable=np.array([0, 0, 0, -1]))
    bound = lower_bound(two_nodes(services=kept))
    assert (bound.fewest.tolist(), bound.coolable.tolist()) == ([0, 0], [False, False])
    # no room by requests
    bound = lower_bound(two_nodes(services=deployments(np.full(4, 2_400.0))))
    assert bound.coolable.tolist() == [False, False]


# ---- the families and the whole


@pytest.mark.parametrize("name", SMALL)
def test_a_family_has_hot_nodes_and_no_node_is_overbooked(name: str) -> None:
    cluster = FAMILIES[name].make(1)
    assert 0.02 <= cluster.hot.mean() <= 0.25
    assert lower_bound(cluster).coolable.any()
    cpu, memory = cluster.scheduler.free
    assert (cpu >= 0).all()
    assert (memory >= 0).all()


def test_the_page_lists_the_families_and_the_options() -> None:
    page = (ROOT / "docs" / "plan-benchmark.md").read_text()
    section = page.partition("## Families")[2].partition("## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == {
        name: family.about for name, family in FAMILIES.items()
    }
    assert len(FAMILIES) >= 8
    named = set(re.findall(r"^\| `(--[\w-]+)", page, re.MULTILINE))
    assert named == {each for action in options()._actions for each in action.option_strings if each[2:] != "help"} - {
        "-h"
    }


def test_the_least_possible_evictions_of_three_hot_nodes_are_six() -> None:
    for seed in range(1, 5):
        bound = lower_bound(FAMILIES["least"].make(seed))
        assert (int(bound.coolable.sum()), int(bound.fewest.sum())) == (3, 6)


def test_the_snapshot_shows_the_cluster_as_it_is() -> None:
    cluster = plain(1, nodes=6, per_node=10)
    ports = ClusterPorts(cluster)
    ports.put("node-00002", value="hot")
    cluster.evict(0)
    snapshot = ports.snapshot()
    used = ports.read(snapshot)
    assert snapshot.pods.terminating.sum() == 1
    assert snapshot.pods.ready.sum() == 60
    assert [bool(each) for each in snapshot.nodes.taints] == [at == 2 for at in range(6)]
    shown = snapshot.per_node(np.nan_to_num(used.pod_cpu_millicores)) + cluster.overhead
    assert used.node_cpu_millicores == pytest.approx(shown)
    names = [("shop", snapshot.pods.names[0]), ("shop", snapshot.pods.names[-1]), ("shop", "w0-99999")]
    leaving, coming = ports.pod_states(names).values()
    assert (leaving.uid, leaving.terminating, leaving.ready) == (snapshot.pods.uids[0], True, True)
    assert (coming.uid, coming.terminating, coming.ready) == (snapshot.pods.uids[-1], False, False)
    cluster.advance(GRACE_SECONDS + START_UP_SECONDS[1])
    assert [each.ready for each in ports.pod_states(names).values()] == [True]
    assert snapshot.replicas(int(snapshot.pods.owner[0]))[1] == cluster.desired[cluster.service[0]] - 1


def test_a_cycle_evicts_in_the_cluster_and_counts_in_the_ledger() -> None:
    family = FAMILIES["even"]
    cluster = family.make(1)
    ports, policy = ClusterPorts(cluster), policy_of(family, cluster)
    with context_over(ports, policy) as context:
        report = run_cycle(context, policy, dry_run=False).report
        assert context.ledger is not None
        assert report.evictions
        assert [each.pod for each in report.evictions] == ports.evicted
        assert len(context.ledger.open_evictions()) == cluster.evictions == len(report.evictions)


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (carry_out("tiny", FAMILIES["tiny"], 4) for _ in range(2))
    first.cpu_seconds = second.cpu_seconds = 0.0
    assert first == second


def test_a_missed_aim_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    good = Result(
        family="even",
        seed=1,
        coolable=20,
        cooled=19,
        no_longer_hot=20,
        evictions=22,
        bound=20,
        landings=100,
        over_target=1,
    )
    output = Output()
    overall_figures(output, [good])
    assert not output.missed
    for field, value in (("cooled", 18), ("evictions", 25), ("over_target", 2), ("returned", 1), ("made_hot", 1)):
        bad, output = Result(**{**{name: getattr(good, name) for name in Result.__slots__}, field: value}), Output()
        overall_figures(output, [bad])
        assert output.missed, field
    assert capsys.readouterr().err == ""


def test_the_command_prints_one_json_object_a_line() -> None:
    command = [sys.executable, "-m", "bench", "plan", "--family", "tiny", "--seeds", "2", "--workers", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert done.returncode == int(any(line["holds"] is False for line in lines))
    assert all(line.keys() == {"bench", "figure", "value", "unit", "aim", "holds"} for line in lines)
    assert {"tiny: evictions", "hot nodes cooled", "nodes made hot"} <= {line["figure"] for line in lines}


def test_make_passes_options_on() -> None:
    command = ["make", "--dry-run", "--old-file=.venv/.ready", "bench", "ONLY=plan", "ARGS=--seeds 3 --family even"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "-m bench plan --seeds 3 --family even" in done.stdout
    command = [sys.executable, "-m", "bench", "--seeds", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "--seeds: options need the name of one benchmark before them"
