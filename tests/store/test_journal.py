"""The journal: what is appended comes back as a recording."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import RUNNING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import Alert, AlertEpisode
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, date_of, slot_of
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.store.journal import DayJournal, journal_days, recording_of
from tests.builders import NOW, APod, a_budget, a_node, a_pod, an_eviction, changed, cluster

MIDNIGHT = NOW - NOW % DAY_SECONDS
START = MIDNIGHT + 10 * 3600.0


class World:
    """Nodes and pods that a test changes; a snapshot is the cluster as it is."""

    def __init__(self, nodes: int = 4) -> None:
        self.nodes = {f"n{index}": a_node(f"n{index}") for index in range(nodes)}
        self.pods: dict[str, APod] = {}
        self.started: dict[str, float] = {}
        self.budgets = {"web": a_budget("web", "web", 1, desired_healthy=2)}

    def add(self, name: str, node: str = "", *, at: float, **fields: object) -> APod:
        pod = a_pod(name, node, owner="web", age=NOW - at, started=False, **{"ready": False, **fields})
        self.pods[name] = pod
        return pod

    def snapshot(self, at: float) -> ClusterSnapshot:
        pods = [self.pods[name] for name in sorted(self.pods)]
        made = cluster(list(self.nodes.values()), pods, budgets=list(self.budgets.values()))
        started = np.array([self.started.get(pod.name, np.nan) for pod in pods])
        return replace(made, taken=at, pods=replace(made.pods, started=started))


def append(
    journal: DayJournal,
    snapshot: ClusterSnapshot,
    evictions: tuple[Eviction, ...] = (),
    alerts: tuple[AlertEpisode, ...] = (),
) -> None:
    journal.append(snapshot, evictions=evictions, alerts=alerts)


def read(folder: Path, world: World, *, start: float = START, end: float, **fields: object) -> Recording:
    usage = fields.pop("usage", {})
    assert not fields
    return recording_of(folder, cluster="one", start=start, end=end, today=world.snapshot(end), usage=usage)  # type: ignore[arg-type]


def file_of(folder: Path, at: float = START) -> Path:
    return folder / "one" / f"journal-{date_of(slot_of(at)[0])}.rbj"


def state_at(recording: Recording, at: float) -> dict[str, tuple[str, str, str, bool]]:
    """Pod -> (node, owner, label, Ready) of those that are there."""
    pods, out = recording.pods, {}
    for pod, name in enumerate(pods.names):
        if not pods.created[pod] <= at < pods.ended[pod]:
            continue
        is_bound = bool(pods.bound[pod] <= at)
        out[name] = (
            recording.nodes.names[pods.node[pod]] if is_bound else "",
            recording.owners[pods.owner[pod]].name,
            recording.pod_templates[int(pods.template[pod])].labels["app"],
            bool(pods.ready[pod] <= at),
        )
    return out


def changed_at_random(world: World, at: float, before: float, chance: random.Random, number: Iterator[int]) -> None:
    """A few random changes in the time since the last entry."""
    for _ in range(chance.randrange(5)):
        kind = chance.choice(("come", "come", "bind", "bind", "ready", "ready", "end", "finish", "node", "leave"))
        pods = sorted(world.pods)
        unbound = [name for name in pods if not world.pods[name].node]
        unready = [name for name in pods if world.pods[name].node and not world.pods[name].ready]
        if kind == "come":
            world.add(f"p{next(number)}", at=chance.uniform(before, at))
        elif kind == "bind" and unbound:
            name = chance.choice(unbound)
            world.pods[name].node = chance.choice(sorted(world.nodes))
            if chance.random() < 0.7:
                world.started[name] = chance.uniform(before, at)
        elif kind == "ready" and unready:
            world.pods[chance.choice(unready)].ready = True
        elif kind == "end" and pods:
            del world.pods[chance.choice(pods)]
        elif kind == "finish" and unready:
            world.pods[chance.choice(unready)].phase = SUCCEEDED
        elif kind == "node":
            name = f"n{chance.randrange(8)}"
            world.nodes[name] = a_node(name, ready=chance.random() < 0.8, unschedulable=chance.random() < 0.3)
        elif kind == "leave" and len(world.nodes) > 2:
            gone = chance.choice(sorted(world.nodes))
            del world.nodes[gone]
            for name in [name for name in pods if name in world.pods and world.pods[name].node == gone]:
                del world.pods[name]


@pytest.mark.parametrize("seed", range(5))
def test_every_state_comes_back_after_1000_random_changes(tmp_path: Path, seed: int) -> None:
    chance, world, at = random.Random(seed), World(), START
    journal, number = DayJournal(tmp_path, cluster="one"), iter(range(100_000))
    expected = {}
    for _ in range(500):
        before, at = at, at + chance.uniform(20.0, 300.0)
        changed_at_random(world, at, before, chance, number)
        if chance.random() < 0.02:
            journal = DayJournal(tmp_path, cluster="one")  # the daemon was restarted
        append(journal, world.snapshot(at))
        expected[at] = (
            {pod.name: (pod.node, "web", "web", pod.ready) for pod in world.pods.values() if pod.phase == RUNNING},
            {node.name: (node.ready, node.unschedulable) for node in world.nodes.values()},
        )
    end = at - at % STEP_SECONDS + STEP_SECONDS
    recording = read(tmp_path, world, end=end)
    assert len(journal_days(tmp_path, "one")) == 2
    assert len(recording.pods) > 150
    assert not [gap for gap in recording.gaps if "CPU" not in gap.text and "came back" not in gap.text]
    for when, (pods, nodes) in expected.items():
        assert state_at(recording, when) == pods
        there = (recording.node_joined <= when) & (when < recording.node_left)
        assert {name for name, is_there in zip(recording.nodes.names, there, strict=True) if is_there} >= set(nodes)
    # of a step what its last entry says
    of_steps = {int((when - START) // STEP_SECONDS): nodes for when, (_, nodes) in expected.items()}
    last_of_step = {int((when - START) // STEP_SECONDS): when for when in expected}
    following = dict(pairwise(expected))
    row_of = {name: row for row, name in enumerate(recording.nodes.names)}
    for step, nodes in of_steps.items():
        for name, row in row_of.items():
            assert recording.node_ready[row, step] == (name in nodes and nodes[name][0])
            # a node that is gone in the next entry counts as cordoned from the last one on
            if name in nodes and name in expected[following.get(last_of_step[step], last_of_step[step])][1]:
                assert recording.node_unschedulable[row, step] == nodes[name][1]


def test_times_lie_between_the_entries(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    world.add("old", "n0", at=START - 5000.0, ready=True)
    world.started["old"] = START - 4990.0
    append(journal, world.snapshot(START + 10.0))
    world.add("new", at=START + 100.0)
    append(journal, world.snapshot(START + 110.0))
    world.pods["new"].node, world.started["new"] = "n1", START + 130.0
    append(journal, world.snapshot(START + 210.0))
    world.pods["new"].ready = True
    append(journal, world.snapshot(START + 310.0))
    del world.pods["new"]
    append(journal, world.snapshot(START + 410.0))
    pods = read(tmp_path, world, end=START + 600.0).pods
    old, new = pods.names.index("old"), pods.names.index("new")
    assert (pods.bound[old], pods.ready[old], pods.ended[old]) == (START - 4990.0, START - 4990.0, np.inf)
    assert (pods.created[new], pods.bound[new]) == (START + 100.0, START + 130.0)
    assert (pods.ready[new], pods.ended[new]) == (START + 260.0, START + 360.0)


def test_replacements_are_chained_to_the_evicted_pods(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    world.add("a", "n0", at=START - 500.0, ready=True)
    append(journal, world.snapshot(START + 10.0))
    gone = an_eviction(
        uid="uid-shop-a", pod="a", node="n0", outcome=Outcome.EVICTED, planned_at=START + 20, answered_at=START + 21
    )
    append(journal, world.snapshot(START + 30.0), (gone,))
    del world.pods["a"]
    world.add("b", "n1", at=START + 40.0)
    append(journal, world.snapshot(START + 60.0), (gone,))
    world.pods["b"].ready = True
    landed = changed(gone, replacement_uid="uid-shop-b", replaced_at=START + 70.0)
    append(journal, world.snapshot(START + 120.0), (landed,))
    pods = read(tmp_path, world, end=START + 300.0).pods
    a, b = pods.names.index("a"), pods.names.index("b")
    assert pods.replaced.tolist() == [a if row == b else -1 for row in range(2)]
    assert pods.ready[b] == START + 70.0
    assert START + 30.0 <= pods.ended[a] <= START + 60.0


def test_budgets_and_alerts_come_back(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    world.add("a", "n0", at=START - 500.0)
    alert = Alert(fingerprint="f", firing=True, labels={"node": "n0"}, annotations={"high": "70"}, starts_at=START)
    episode = AlertEpisode(id=7, alert=alert, received_at=START + 5.0, next_at=START + 5.0)
    append(journal, world.snapshot(START + 10.0), alerts=(episode,))
    world.budgets["web"] = replace(world.budgets["web"], desired_healthy=3, disruptions_allowed=0)
    append(journal, world.snapshot(START + 310.0), alerts=(episode,))
    world.budgets.clear()
    append(journal, world.snapshot(START + 610.0))
    recording = read(tmp_path, world, end=START + 900.0)
    (budget,) = recording.budgets
    assert (budget.namespace, budget.name, budget.since, budget.until) == ("shop", "web", -np.inf, START + 610.0)
    assert budget.selector == a_budget("web", "web", 1).selector
    assert budget.desired_healthy.tolist() == [2, 3, 3]
    (fired,) = recording.alerts
    assert (fired.at, fired.until, fired.labels, fired.annotations) == (
        START + 5.0,
        START + 610.0,
        {"node": "n0"},
        {"high": "70"},
    )


def test_our_soft_taints_and_cordons_are_not_the_clusters(tmp_path: Path) -> None:
    world = World()
    world.nodes["n0"] = a_node(
        "n0",
        unschedulable=True,
        taints=(
            Taint(key="rebalancer.dev/steer", value="draining", effect="PreferNoSchedule"),
            Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
            Taint(key="own", effect="NoSchedule"),
        ),
    )
    world.nodes["n1"] = a_node("n1", unschedulable=True)
    append(DayJournal(tmp_path, cluster="one"), world.snapshot(START))
    recording = read(tmp_path, world, end=START + 300.0)
    assert [each.key for each in recording.nodes.taints[0]] == ["own"]
    assert recording.node_unschedulable[:2, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    "key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/disk-pressure"]
)
def test_a_taint_of_a_nodes_last_minutes_is_not_that_of_all_days(tmp_path: Path, key: str) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    own = Taint(key="own", effect="NoSchedule")
    for at in range(0, 3600, 300):
        late = at >= 3000
        taints = (own, Taint(key=key, effect="NoSchedule")) if late else (own,)
        world.nodes["n0"] = a_node("n0", taints=taints, labels={"pool": "other" if late else "a"})
        append(journal, world.snapshot(START + at + 10.0))
    recording = read(tmp_path, world, end=START + 3600.0)
    assert recording.nodes.taints[0] == (own,)
    assert recording.nodes.labels[0]["pool"] == "a"
    assert recording.node_unschedulable[0].tolist() == [False] * 10 + [True] * 2
    texts = [gap.text for gap in recording.gaps]
    assert "taints that come and go on 1 node: they count as cordoned meanwhile" in texts
    assert "labels or taints of 1 node changed: those of the longest time are taken" in texts


def test_a_node_that_comes_back_under_its_name_has_no_usage_meanwhile(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    for at in range(0, 3600, 300):
        world.nodes.pop("n0", None)
        if not 900 <= at < 1800:
            world.nodes = {"n0": a_node("n0"), **world.nodes}
        append(journal, world.snapshot(START + at + 10.0))
    day = slot_of(START)[0]
    block = DayBlock(
        day=day,
        pods=(),
        pod_millicores=np.zeros((0, SLOTS), dtype=np.float32),
        nodes=("n0",),
        node_millicores=np.full((1, SLOTS), 500.0, dtype=np.float32),
    )
    recording = read(tmp_path, world, end=START + 3600.0, usage={CPU: [block]})
    away = [False] * 3 + [True] * 3 + [False] * 6
    row = recording.nodes.names.index("n0")
    assert (~recording.node_ready[row]).tolist() == away
    assert np.isnan(recording.usage[CPU].node[row])[3:].tolist() == away[3:]
    assert recording.node_unschedulable[row, 3:6].all()
    assert any("1 node left and came back under the same name" in gap.text for gap in recording.gaps)


def test_soft_taints_are_from_the_cycle_that_set_them_to_the_one_that_removed_them(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World()
    mark = Taint(key="rebalancer.dev/steer", value="hot", effect="PreferNoSchedule")
    for at, marked in ((60.0, ()), (120.0, ("n0", "n1")), (180.0, ("n0", "n1", "n2")), (240.0, ("n1",)), (300.0, ())):
        world.nodes = {
            name: a_node(name, taints=(mark,) if name in marked else ())
            for name in ("n0", "n1", "n2", "n3")
            if (name, at) != ("n1", 300.0)
        }
        if at == 180.0:
            journal = DayJournal(tmp_path, cluster="one")
        append(journal, world.snapshot(START + at))
    recording = read(tmp_path, world, end=START + 600.0)
    assert [
        (recording.nodes.names[node], since - START, until - START) for node, since, until in recording.soft_taints
    ] == [
        ("n0", 60.0, 180.0),
        ("n1", 60.0, 240.0),
        ("n2", 120.0, 180.0),
    ]


def test_images_of_nodes_that_left_are_those_of_the_days_first_entry(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World(nodes=0)
    world.nodes = {name: a_node(name, images={"web:1": 5e6}) for name in ("n0", "n1")}
    append(journal, world.snapshot(START))
    del world.nodes["n0"]
    world.nodes["n1"] = a_node("n1", images={"web:1": 5e6, "web:2": 6e6})
    append(journal, world.snapshot(START + 60.0))
    nodes = read(tmp_path, world, end=START + 300.0).nodes
    assert nodes.names == ("n0", "n1")
    assert sorted(nodes.images.nodes_with("web:1").tolist()) == [0, 1]
    assert nodes.images.nodes_with("web:2").tolist() == [1]
    assert nodes.images.size_of("web:2") == 6e6


def test_usage_is_that_of_the_day_blocks_while_the_pod_was_there(tmp_path: Path) -> None:
    journal, world = DayJournal(tmp_path, cluster="one"), World(nodes=1)
    world.add("a", "n0", at=START - 500.0)
    world.add("unknown", "n0", at=START - 500.0)
    append(journal, world.snapshot(START + 10.0))
    del world.pods["a"]
    append(journal, world.snapshot(START + 590.0))
    day, slot = slot_of(START)
    values = np.arange(2 * SLOTS, dtype=np.float32).reshape(2, SLOTS)
    block = DayBlock(
        day=day, pods=("shop/a", "shop/stranger"), pod_millicores=values, nodes=("n0",), node_millicores=values[:1] + 7
    )
    recording = read(tmp_path, world, end=START + 900.0, usage={CPU: [replace(block, day=day - 1), block]})
    usage, a = recording.usage[CPU], recording.pods.names.index("a")
    assert usage.pod_first[a] == 0
    assert usage.pod_values[usage.pod_start[a] : usage.pod_start[a + 1]].tolist() == [slot]
    assert usage.node.tolist() == [[slot + 7 + step for step in range(3)]]
    assert [(each.day, each.filled) for each in recording.before[CPU]] == [(day - 1, SLOTS), (day, slot)]
    assert {gap.text.split(",")[0]: gap.pods for gap in recording.gaps} == {
        "their CPU is not known": 1,
        "they used CPU and are in no entry": 1,
    }
