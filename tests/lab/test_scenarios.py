"""The scenarios that ship with the package."""

from collections.abc import Callable

import pytest

from rebalancer.lab import Lab, ScenarioError, load, names, node, workload
from rebalancer.lab.scenarios.scenario import parse
from tests.lab.conftest import Client

Start = Callable[..., Lab]

HIGH, TARGET, LOW = 0.75, 0.65, 0.50
MUST_STAY = {
    *("node-agent", "kube-proxy", "log-shipper", "api", "ledger", "gateway", "debug-shell", "indexer"),
    *("nightly-report", "simulate"),
}


def test_every_shipped_scenario_loads_and_all_its_pods_run(start: Start) -> None:
    for name in names():
        lab = start(load(name))
        assert {pod["status"]["phase"] for pod in lab.cluster.pods()} == {"Running"}


@pytest.mark.quiet
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_demo_has_three_hot_nodes_that_few_evictions_cool(start: Start, seed: int) -> None:
    lab = start("demo", stepped=True, seed=seed)
    shares = lab.truth.node_cpu_share()
    assert sorted(lab.truth.hot(HIGH)) == ["cmp-1", "gen-2", "gen-5"]
    assert all(0.8 < shares[name] < 0.92 for name in lab.truth.hot(HIGH))
    assert sum(share < LOW for share in shares.values()) >= 3
    assert 150 <= len(lab.cluster.pods()) <= 250
    client = Client(lab.url)

    def bound() -> int:
        """Pods on a node that are not terminating."""
        return sum(
            bool(each["spec"].get("nodeName")) and "deletionTimestamp" not in each["metadata"]
            for each in lab.cluster.pods()
        )

    pods = bound()
    for hot in lab.truth.hot(HIGH).values():
        excess = (hot.share - TARGET) * 16
        for pod in hot.pods:
            found = lab.cluster.store.get("pods", pod.namespace, pod.name)
            service = found["metadata"]["labels"]["app.kubernetes.io/name"]
            if excess > 0 and service not in MUST_STAY and client.evict(found).code == 201:
                excess -= pod.cores
                # one after the other: how many wait for a node at a time would be up to the machine
                lab.cluster.wait_until(lambda: bound() == pods)
    assert 4 <= len(lab.log.evictions(code=201)) <= 8
    lab.clock.sleep(400)
    assert lab.truth.hot(HIGH) == {}


def test_the_demo_is_the_same_whenever_it_starts(start: Start) -> None:
    one, two = start("demo", start_time=1.7e9), start("demo", start_time=1.71e9 + 4321)
    first, second = (lab.truth.node_cpu_share(lab.clock.started_at) for lab in (one, two))
    assert first == pytest.approx(second, abs=0.01)
    uids = [[pod["metadata"]["uid"] for pod in lab.cluster.pods()] for lab in (one, two)]
    assert uids[0] == uids[1]


def test_the_siblings_of_an_evicted_pod_carry_its_load_until_the_replacement_is_ready(start: Start) -> None:
    lab = start("demo", stepped=True)
    evicted, *siblings = lab.cluster.pods(workload="suggest")
    names = [("search", pod["metadata"]["name"]) for pod in siblings]

    def carried() -> float:
        now = lab.clock.now()
        used = {
            (each.namespace, each.name): each.cores for hot in lab.truth.hot(0.0, now).values() for each in hot.pods
        }
        return sum(used[name] for name in names) / len(names)

    before = carried()
    Client(lab.url).evict(evicted)
    lab.clock.sleep(5)
    assert carried() == pytest.approx(before * 7 / 6, rel=0.02)
    lab.clock.sleep(60)
    assert carried() == pytest.approx(before, rel=0.02)


def test_a_service_that_one_machine_can_take_comes_back_to_it(start: Start) -> None:
    lab = start("demo", stepped=True)
    Client(lab.url).evict(lab.cluster.pods(workload="indexer")[0])
    lab.clock.sleep(120)
    assert lab.log.entries("bound")[0].node == "gen-5"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nodes: [{name: a, cpus: 4}]", "unknown field `cpus`"),
        ("nodes: [{cpu: 4}]", "missing required field `name`"),
        ("workloads: [{name: w, cpu: {base: 1, amplitude: 0.7, noise: 0.7}}]", "together at most 1"),
        ("[", "not YAML"),
        ("3", "expected a mapping"),
    ],
)
def test_a_wrong_scenario_is_one_clear_line(text: str, error: str) -> None:
    with pytest.raises(ScenarioError, match=error) as caught:
        parse(text.encode(), "mine.yaml")
    assert "\n" not in str(caught.value)


def test_builders_are_as_strict_as_files() -> None:
    with pytest.raises(ScenarioError, match=r"node a: .*`colour`"):
        node("a", colour="red")
    with pytest.raises(ScenarioError, match="workload w: "):
        workload("w", kind="Sandwich")
    with pytest.raises(ScenarioError, match="no scenario 'nope'"):
        load("nope")


def test_episodes_tell_from_hot_until_cool(start: Start) -> None:
    lab = start("small", stepped=True)
    begun = lab.clock.started_at
    client = Client(lab.url)
    for pod in lab.cluster.pods(workload="web", node="node-1")[:2]:
        assert client.evict(pod).code == 201
    lab.clock.sleep(300)
    assert not lab.truth.hot(HIGH)
    (episode,) = lab.truth.episodes(high=HIGH, start=begun, end=lab.clock.now(), step_seconds=15.0)
    assert (episode.node, episode.over) == ("node-1", True)
    assert episode.peak_share > HIGH
