"""Sequences of landings in draws, held against every course that kube-scheduler can take and against its sample.

A share is the mean over the draws of a probability that is exact in each: it is off by what the courses drawn before
differ from all courses, a standard error of sqrt(p (1 - p) / draws) at most. `ERRORS` of them are allowed.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.reason import Refusal
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.draws.draws import DRAWS, FEW_DRAWS, MANY_NODES, Draws
from rebalancer.placement.draws.sampling import nodes_to_find
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.placement.scheduler.engine import Departure, Engine
from tests.builders import GIB, ANode, APod, a_node, a_pod, cluster
from tests.placement.builders import OFF
from tests.planner.oracles.futures import NOWHERE, futures

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ERRORS = 4.5
WORLDS = range(60)
MOVES = 4


@dataclass(frozen=True, kw_only=True)
class World:
    """A small cluster; the first pods leave their node one after the other."""

    nodes: list[ANode]
    pods: list[APod]
    moved: list[str]
    """Names."""
    rules: tuple[str, ...]
    """Of the pods that move."""

    def snapshot(self, shuffled: random.Random | None = None) -> ClusterSnapshot:
        nodes, pods = list(self.nodes), list(self.pods)
        if shuffled is not None:
            shuffled.shuffle(nodes)
            shuffled.shuffle(pods)
        return cluster(nodes, pods)


def _rules(service: str) -> dict[str, dict[str, Any]]:
    own = {"labelSelector": {"matchLabels": {"app": service}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    # the services keep away from each other too
    away = {"labelSelector": {"matchLabels": {"tier": "apart"}}, "topologyKey": HOSTNAME}
    return {
        "plain": {},
        "spread": {
            "topologySpread": [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **own}]
        },
        "softly": {
            "topologySpread": [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **own}]
        },
        "apart": {"affinity": {"podAntiAffinity": {required: [away]}}},
        "near": {"affinity": {"podAffinity": {required: [{**own, "topologyKey": ZONE}]}}},
        "port": {"hostPorts": [["TCP", 80, "0.0.0.0"]]},
        "device": {"extendedRequests": {"gpu": 1.0}},
    }


def a_world(number: int, *, size: int = 0) -> World:
    """The same for the same number. `size`: nodes besides the one that is left."""
    rng = random.Random(number)
    names = [f"n{index}" for index in range(size or rng.randint(3, 4))]
    rng.shuffle(names)
    nodes = [
        a_node(
            name,
            labels={ZONE: rng.choice(["z1", "z2"])},
            extended={"gpu": 2.0} if rng.random() < 0.7 else {},
            pods=rng.choice([2, 3, 110]),
        )
        for name in names
    ]
    nodes.append(a_node("home", labels={ZONE: "z1"}, extended={"gpu": 8.0}, **(OFF if rng.random() < 0.7 else {})))
    agents = [
        a_pod(
            f"agent-{name}", name, owner="agent", owner_kind="DaemonSet", cpu=rng.choice([500.0, 500.0, 500.0, 900.0])
        )
        for name in names
        if rng.random() < 0.8
    ]
    moved: list[APod] = []
    rules: list[str] = []
    while len(moved) < MOVES:
        service, rule = f"s{len(rules)}", rng.choice(["plain", *_rules("")])
        rules.append(rule)
        kind = rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "Rollout"])
        fields = {"cpu": rng.choice([0.0, 1.0, 400.0, 1_500.0]), "memory": rng.choice([0.0, 1.0]) * GIB}
        labels = {"app": service, "tier": rng.choice(["apart", "other"]) if rule != "apart" else "apart"}
        for _ in range(rng.choice([1, 2, 2])):
            name = f"p{len(moved)}"
            template = _rules(service)[rule]
            moved.append(
                a_pod(name, "home", owner=service, owner_kind=kind, labels=labels, template=template, **fields)
            )
    moved = moved[:MOVES]
    rng.shuffle(moved)
    kinds = {f"{each.owner_kind}" for each in moved}
    return World(nodes=nodes, pods=[*moved, *agents], moved=[each.name for each in moved], rules=(*rules, *kinds))


@dataclass(frozen=True)
class Step:
    """One move of a sequence."""

    landing: Landing
    shares: Floats
    """(nodes,)"""
    winners: NDArray[np.int64]


def sequence(model: PlacementModel, made: ClusterSnapshot, pods: Sequence[int]) -> list[Step]:
    """Moves counted one after the other, up to the first that has no landing."""
    steps = []
    for index in pods:
        pod = made.pod(index)
        landing = model.landings(pod)
        if isinstance(landing, Refusal):
            break
        shares = np.zeros(len(made.nodes))
        shares[landing.nodes] = landing.shares
        steps.append(Step(landing, shares, model.winners(pod, landing)))
        model.commit(pod, steps[-1].winners)
    return steps


def indices(made: ClusterSnapshot, names: Sequence[str]) -> list[int]:
    return [made.pods.names.index(name) for name in names]


def error(shares: Floats, draws: int = DRAWS) -> Floats:
    """(nodes,) standard errors."""
    out: Floats = np.sqrt(shares * (1 - shares) / draws)
    return out


def exact_shares(made: ClusterSnapshot, pods: Sequence[int]) -> list[Floats]:
    """(nodes,) of each move, from every course; up to the first that fits nowhere in one of them, the sum is less
    there."""
    out = []
    for draws in futures(made, pods, np.arange(len(made.pods), dtype=float)):
        shares: dict[int, float] = defaultdict(float)
        for draw in draws:
            shares[draw.node] += draw.chance
        out.append(np.array([shares[node] for node in range(len(made.nodes))]))
        if NOWHERE in shares:
            break
    return out


# ---- single moves


@pytest.mark.parametrize("number", WORLDS)
def test_the_shares_of_a_single_move_are_exact(number: int) -> None:
    world = a_world(number)
    made = world.snapshot()
    for index in indices(made, world.moved):
        exact = exact_shares(made, [index])
        found = PlacementModel(made).landings(made.pod(index))
        assert isinstance(found, Landing) == exact[0].any()
        if isinstance(found, Landing):
            shares = np.zeros(len(made.nodes))
            shares[found.nodes] = found.shares
            assert shares == pytest.approx(exact[0], abs=1e-12)


def a_large_world(number: int, size: int) -> World:
    """Nodes with three amounts of requests, and pods of different services."""
    rng = random.Random(number)
    names = [f"n{index:03d}" for index in range(size)]
    nodes = [a_node("home", **OFF), *(a_node(name) for name in names)]
    loads = {name: rng.choice([200.0, 1_000.0, 1_000.0, 3_000.0]) for name in names}
    agents = [a_pod(f"agent-{name}", name, owner="agent", owner_kind="DaemonSet", cpu=loads[name]) for name in names]
    moved = [a_pod(f"p{at}", "home", owner=f"s{at // 2}", cpu=rng.choice([600.0, 1_200.0])) for at in range(MOVES)]
    return World(nodes=nodes, pods=[*moved, *agents], moved=[each.name for each in moved], rules=())


def sampled(scores: Floats, sample: int, rng: np.random.Generator) -> int:
    """kube-scheduler's choice: the best of a sample of the feasible nodes, one of those with the same score."""
    seen = rng.permutation(np.flatnonzero(scores > -np.inf))[:sample]
    best = scores[seen].max()
    return int(rng.choice(seen[scores[seen] == best]))


@pytest.mark.parametrize("size", [130, 300])
def test_above_a_hundred_nodes_the_shares_of_a_single_move_are_those_of_the_sample(size: int) -> None:
    world, rng = a_large_world(size, size), np.random.default_rng(size)
    made = world.snapshot()
    found = PlacementModel(made).landings(made.pod(0))
    assert isinstance(found, Landing)
    board = Board(made)
    scores = Engine(board).scores(board.kinds.of(0), Departure(0, terminating=True))
    trials, counts = 6_000, np.zeros(len(made.nodes))
    for _ in range(trials):
        counts[sampled(scores, nodes_to_find(len(made.nodes), 0), rng)] += 1
    shares = np.zeros(len(made.nodes))
    shares[found.nodes] = found.shares
    assert shares.sum() > 0.999
    assert (np.abs(counts / trials - shares) <= ERRORS * error(shares, trials) + 1e-3).all()


# ---- sequences


def test_the_shares_of_every_move_of_a_sequence_are_those_of_all_courses() -> None:
    compared: list[float] = []
    uncertain = 0
    for number in WORLDS:
        world = a_world(number)
        made = world.snapshot()
        pods = indices(made, world.moved)
        exact = exact_shares(made, pods)
        steps = sequence(PlacementModel(made), made, pods)
        exact = [each for each in exact if each.any()]
        assert len(steps) >= len(exact)
        for at, (step, true) in enumerate(zip(steps, exact, strict=False)):
            off, allowed = np.abs(step.shares - true), ERRORS * error(true)
            # a landing that is impossible or certain in every course is so in the draws
            assert (off <= np.where(allowed < 1e-9, 1e-9, allowed)).all(), (number, at, step.shares, true)
            maybe = (true > 1e-9) & (true < 1 - 1e-9) & (at > 0)
            uncertain += bool(maybe.any())
            compared += (off[maybe] / error(true)[maybe]).tolist()
    assert uncertain > len(WORLDS) / 2
    # no more than the sampling error on the whole either
    assert np.mean(np.square(compared)) <= 1.0


def test_these_worlds_have_pods_of_every_sort() -> None:
    found = {rule for number in WORLDS for rule in a_world(number).rules}
    assert found == {*_rules(""), "ReplicaSet", "StatefulSet", "Rollout"}
    drawn = [sequence(PlacementModel(made := a_world(n).snapshot()), made, range(MOVES)) for n in WORLDS]
    assert sum(bool(len(step.landing.slots)) for steps in drawn for step in steps) > len(WORLDS)


def test_above_a_hundred_nodes_a_sequence_is_that_of_the_sample() -> None:
    size, trials = 130, 700
    world, rng = a_large_world(5, size), np.random.default_rng(5)
    made = world.snapshot()
    steps = sequence(PlacementModel(made), made, range(MOVES))
    board = Board(made)
    engine, sample = Engine(board), nodes_to_find(len(made.nodes), 0)
    courses = np.zeros((trials, MOVES), dtype=np.int64)
    for trial in range(trials):
        with board.tentatively():
            for pod in range(MOVES):
                kind = board.kinds.of(pod)
                node = courses[trial, pod] = sampled(engine.scores(kind, Departure(0, terminating=True)), sample, rng)
                board.take_out(kind, 0)
                board.put(kind, np.array([node]), np.ones(1))
    drawn = np.stack([step.winners for step in steps], axis=1)
    loads = made.per_node(made.pods.cpu_request_millicores)
    for pod in range(MOVES):
        for load in np.unique(loads):
            true, ours = np.mean(loads[courses[:, pod]] == load), np.mean(loads[drawn[:, pod]] == load)
            mean = steps[pod].shares[loads == load].sum()
            errors = np.sqrt(max(true * (1 - true), 1 / trials) * (1 / trials + 1 / DRAWS))
            assert abs(mean - true) <= ERRORS * errors
            assert abs(ours - true) <= ERRORS * errors
    # how often two of them are on one node
    true, ours = (float(np.mean([len(set(each)) < MOVES for each in those.tolist()])) for those in (courses, drawn))
    assert abs(ours - true) <= ERRORS * np.sqrt(max(true * (1 - true), 1 / trials) * (1 / trials + 1 / DRAWS))


# ---- winners


def test_the_winners_are_as_frequent_as_their_shares() -> None:
    compared: list[float] = []
    for number in WORLDS:
        world = a_world(number)
        made = world.snapshot()
        for step in sequence(PlacementModel(made), made, indices(made, world.moved)):
            if step.shares.sum() < 1 - 1e-9:  # where it fits nowhere in a draw it is counted somewhere
                break
            often = np.bincount(step.winners, minlength=len(made.nodes)) / DRAWS
            assert often[step.shares < 1e-12].sum() == 0
            assert (np.abs(often - step.shares) <= ERRORS * error(step.shares) + 1e-9).all(), number
            maybe = (step.shares > 1e-9) & (step.shares < 1 - 1e-9)
            compared += (np.abs(often - step.shares)[maybe] / error(step.shares)[maybe]).tolist()
    assert len(compared) > 2 * len(WORLDS)
    # one number from each of as many parts as there are draws: less than independent ones would differ
    assert np.mean(np.square(compared)) <= 0.8


def test_winners_are_the_same_whenever_they_are_asked_and_others_for_another_pod() -> None:
    made = cluster(
        [a_node("home", **OFF), *(a_node(f"n{at}") for at in range(8))],
        [a_pod(f"p{at}", "home", owner=f"s{at}", cpu=1.0) for at in range(2)],
    )
    model = PlacementModel(made)
    both = []
    for index in range(2):
        landing = model.landings(made.pod(index))
        assert isinstance(landing, Landing)
        both.append(model.winners(made.pod(index), landing))
        assert model.winners(made.pod(index), landing).tolist() == both[-1].tolist()
    assert np.mean(both[0] == both[1]) == pytest.approx(1 / 8, abs=ERRORS * np.sqrt(7 / 64 / DRAWS))


def test_a_large_cluster_has_fewer_draws() -> None:
    assert [Draws(nodes).count for nodes in (1, MANY_NODES, MANY_NODES + 1)] == [DRAWS, DRAWS, FEW_DRAWS]


# ---- listings, trials


@pytest.mark.parametrize("number", range(0, 60, 4))
def test_the_order_in_which_nodes_and_pods_are_listed_changes_nothing(number: int) -> None:
    told = []
    for shuffled in (None, random.Random(number)):
        world = a_world(number) if number % 8 else a_large_world(number, 110)
        made = world.snapshot(shuffled)
        steps = sequence(PlacementModel(made), made, indices(made, world.moved))
        names = np.array(made.nodes.names)
        told.append([
            (names[each.landing.nodes].tolist(), np.round(each.landing.shares, 9).tolist(),
             names[each.winners].tolist(), each.landing.feasible) for each in steps
        ])  # fmt: skip
    assert told[0]
    assert told[0] == told[1]


def everything(model: PlacementModel, made: ClusterSnapshot, pods: Sequence[int]) -> str:
    """What is counted and what is answered, to the last bit."""
    board, draws = model._board, model.draws
    kept = [board.held, board.counted, model.closed, draws.draw, draws.node, draws.requests]
    answers = []
    for index in pods:
        found = model.landings(made.pod(index))
        if isinstance(found, Refusal):
            answers.append([found.code])
            continue
        columns = (found.nodes, found.shares, found.slots, found.slot_shares, model.winners(made.pod(index), found))
        answers.append([each.tolist() for each in columns])
    landed = [(kind, nodes.tolist()) for kind, nodes in draws.landed]
    return repr(([each.tolist() for each in kept], landed, answers))


@pytest.mark.parametrize("number", range(0, 60, 3))
def test_what_is_tried_is_undone_to_the_last_bit(number: int) -> None:
    world = a_world(number, size=5)
    made = world.snapshot()
    pods = indices(made, world.moved)
    model, fresh = PlacementModel(made), PlacementModel(made)
    for each in (model, fresh):
        sequence(each, made, pods[:1])
    before = everything(model, made, pods[1:])
    with model.as_if_cordoned(made.node_index["n0"]):
        sequence(model, made, pods[1:])
        assert everything(model, made, pods[1:]) != before
    assert everything(model, made, pods[1:]) == before
    for each in (model, fresh):
        sequence(each, made, pods[1:3])
    assert everything(model, made, pods[3:]) == everything(fresh, made, pods[3:])


@pytest.mark.parametrize("number", range(1, 60, 3))
def test_started_over_a_model_equals_a_new_one(number: int) -> None:
    world = a_world(number, size=5)
    made = world.snapshot()
    pods = indices(made, world.moved)
    model = PlacementModel(made)
    sequence(model, made, pods)
    mask = np.array([name == "n1" for name in made.nodes.names])
    views: list[dict[str, Any]] = [
        {},
        {"soft_tainted": mask},
        {"soft_tainted": ~mask, "cordoned": mask},
        {"closed": mask},
    ]
    for view in views:
        model.start_over(**view)
        fresh = PlacementModel(made, **view)
        assert everything(model, made, pods) == everything(fresh, made, pods)
        sequence(model, made, pods[:3])
        sequence(fresh, made, pods[:3])
        assert everything(model, made, pods[3:]) == everything(fresh, made, pods[3:])
