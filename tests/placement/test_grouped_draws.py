"""Draws that a pod's own rules can't tell apart are grouped: compared with each draw by itself."""

import cProfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.model.reason import Refusal
from rebalancer.placement.cluster.board import Landed
from rebalancer.placement.cluster.kinds import Kind
from rebalancer.placement.draws.counts import NodeCounts, alike, neighbours
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.placement.landing.outlooks import Matter, Outlooks
from tests.builders import a_node, cluster, replicas
from tests.placement.scenarios import crowded_world
from tests.placement.test_draws import HOSTNAME, ZONE, a_world, indices

DRAWS_IN_TESTS, NODES_IN_TESTS = 4, 5
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class OneByOne(Outlooks):
    """Each draw by itself, with its landings counted anew."""

    def _groups(self, landed: Sequence[Matter]) -> tuple[list[Rows], bool]:
        return [np.array([draw]) for draw in range(self._draws.count)], True

    def _seen_as_in(self, draw: int, kind: Kind, landed: Sequence[Matter]) -> AbstractContextManager[None]:
        size = len(self._name_rank)
        there = {}
        for each in self._engine.rules(kind).matters:
            amounts = np.zeros(size)
            for number, winners in self._draws.landed:
                amounts[winners[draw]] += each.group.weights.get(number, 0.0)
            there[each.group.key] = Landed(each.group, np.arange(size), amounts)
        return self._board.seen_with(list(there.values()), np.arange(size))


def shares_of(model: PlacementModel, made: ClusterSnapshot, pod: int) -> tuple[Floats, int] | None:
    """(nodes,) probability of each node, and how many are feasible."""
    landing = model.landings(made.pod(pod))
    if isinstance(landing, Refusal):
        return None
    shares = np.zeros(len(made.nodes))
    shares[landing.nodes] = landing.shares
    return shares, landing.feasible


def compared(made: ClusterSnapshot, pods: Sequence[int], config: SchedulerConfig | None = None) -> list[int]:
    """The number of groups of each of these moves, which are made with the draws grouped and one by one."""
    grouped, alone = PlacementModel(made, config=config), PlacementModel(made, config=config)
    alone._outlooks.__class__ = OneByOne
    groups = []
    for pod in pods:
        ours, theirs = shares_of(grouped, made, pod), shares_of(alone, made, pod)
        if ours is None or theirs is None:
            assert ours is None
            assert theirs is None
            continue
        assert ours[0] == pytest.approx(theirs[0], abs=1e-12)
        assert ours[1] == theirs[1]
        landing = grouped.landings(made.pod(pod))
        assert not isinstance(landing, Refusal)
        groups.append(len(landing.outlooks))
        winners = grouped.winners(made.pod(pod), landing)
        for model in (grouped, alone):
            model.commit(made.pod(pod), winners)
    return groups


# ---- grouped and one by one


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10_000), st.integers(4, 9))
def test_groups_of_draws_give_the_landings_of_every_draw_by_itself_move_by_move(seed: int, size: int) -> None:
    world = crowded_world(seed, size)
    there = np.flatnonzero((world.snapshot.pods.node >= 0) & ~world.snapshot.pods.terminating)
    compared(world.snapshot, np.random.default_rng(seed).permutation(there)[:8].tolist(), world.config)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10_000))
def test_groups_of_draws_give_the_landings_of_every_draw_by_itself_for_each_rule(seed: int) -> None:
    world = a_world(seed, size=5)
    made = world.snapshot()
    compared(made, indices(made, world.moved))


def spread_over_zones(nodes: int, pods: int, **constraint: Any) -> ClusterSnapshot:
    """Nodes in three zones, one of which has most pods of a service with this constraint."""
    selected = {"labelSelector": {"matchLabels": {"app": "web"}}}
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selected, **constraint}
    machines = [a_node(f"n{at:02d}", labels={ZONE: f"z{at % 3}"}) for at in range(nodes)]
    web = replicas("web", {"n00": pods}, cpu=100.0, template={"topologySpread": [spread]})
    return cluster(machines, web)


@pytest.mark.parametrize(("max_skew", "most"), [(1, 3), (5, 25)])
def test_draws_with_the_same_counts_by_zone_are_one_group(max_skew: int, most: int) -> None:
    groups = compared(spread_over_zones(9, 10, maxSkew=max_skew), range(10))
    assert len(groups) == 10
    assert 1 < max(groups) <= most


def test_draws_with_different_counts_by_zone_are_no_group() -> None:
    # after the first move in half of the draws each of the zones z1 and z2 has one
    made = spread_over_zones(3, 4)
    model = PlacementModel(made)
    first = model.landings(made.pod(0))
    assert not isinstance(first, Refusal)
    model.commit(made.pod(0), model.winners(made.pod(0), first))
    second = model.landings(made.pod(1))
    assert not isinstance(second, Refusal)
    assert sorted(len(each.draws) for each, _ in second.outlooks) == [64, 64]


# ---- more groups than are looked at


def test_a_group_of_different_draws_lets_no_pod_on_a_node_that_took_one_in_any_of_them() -> None:
    away = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    machines = [a_node("home", unschedulable=True), *(a_node(f"n{at}") for at in range(8))]
    pods = replicas("web", {"home": 4}, template={"affinity": {"podAntiAffinity": {REQUIRED: [away]}}})
    made = cluster(machines, pods)
    model = PlacementModel(made)
    model._outlooks._most = 1
    taken: list[Rows] = []
    for at, pod in enumerate(range(4)):
        landing = model.landings(made.pod(pod))
        assert not isinstance(landing, Refusal)
        assert len(landing.outlooks) == 1
        taken.append(model.winners(made.pod(pod), landing))
        model.commit(made.pod(pod), taken[-1])
        # pods of different draws: as many nodes as moves are taken in each
        assert (np.array([len(set(each)) for each in np.stack(taken, axis=1).tolist()]) == at + 1).all()


def test_more_groups_than_are_looked_at_are_joined_with_their_neighbours() -> None:
    made = spread_over_zones(9, 12, maxSkew=5)
    model = PlacementModel(made)
    model._outlooks._most = 2
    for pod in range(6):
        landing = model.landings(made.pod(pod))
        assert not isinstance(landing, Refusal)
        assert len(landing.outlooks) <= 2
        assert sum(len(each.draws) for each, _ in landing.outlooks) == model.draws.count
        model.commit(made.pod(pod), model.winners(made.pod(pod), landing))
    assert len(landing.outlooks) == 2


# ---- counts

landings = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(st.integers(0, NODES_IN_TESTS - 1), min_size=DRAWS_IN_TESTS, max_size=DRAWS_IN_TESTS),
    ),
    max_size=12,
)
WEIGHTS = {0: 1.0, 2: 3.0}
DOMAIN = np.array([0, 1, 0, 2, 1])


def slowly(landed: Sequence[tuple[int, list[int]]]) -> Floats:
    """(draws, nodes)"""
    out = np.zeros((DRAWS_IN_TESTS, NODES_IN_TESTS))
    for number, winners in landed:
        for draw, node in enumerate(winners):
            out[draw, node] += WEIGHTS.get(number, 0.0)
    return out


@given(landings, st.integers(0, 12), st.lists(st.booleans(), min_size=NODES_IN_TESTS, max_size=NODES_IN_TESTS))
@example([(0, [at] * DRAWS_IN_TESTS) for at in range(NODES_IN_TESTS)], 2, [True] * NODES_IN_TESTS)
def test_counts_that_are_carried_on_are_those_of_all_landings(
    landed: list[tuple[int, list[int]]], seen_at: int, eligible: list[bool]
) -> None:
    arrays = [(number, np.array(winners)) for number, winners in landed]
    counts = NodeCounts(DRAWS_IN_TESTS, NODES_IN_TESTS, WEIGHTS)
    for upto in (min(seen_at, len(landed)), len(landed)):
        counts.see(arrays[:upto])
    true = slowly(landed)
    every = np.arange(NODES_IN_TESTS)
    for draw in range(DRAWS_IN_TESTS):
        found = np.zeros(NODES_IN_TESTS)
        nodes, amounts = counts.of(draw)
        found[nodes] = amounts
        assert found.tolist() == true[draw].tolist()
        for other in range(DRAWS_IN_TESTS):
            more = counts.more_than_in(draw, np.full(NODES_IN_TESTS, other), every)
            assert more.tolist() == (true[other] > true[draw]).tolist()
    taken = true.any(axis=0)
    assert sorted(counts.nodes.tolist()) == np.flatnonzero(taken).tolist()
    mask = np.array(eligible)
    sums = [true[:, (domain == DOMAIN) & mask].sum(axis=1) for domain in np.unique(DOMAIN[taken & mask])]
    assert counts.by(DOMAIN, mask).T.tolist() == [each.tolist() for each in sums]


@given(landings, landings)
def test_what_landed_tentatively_is_counted_no_more(
    kept: list[tuple[int, list[int]]], tried: list[tuple[int, list[int]]]
) -> None:
    draws = Draws(NODES_IN_TESTS)
    stamp = iter(range(100))

    def land(landed: list[tuple[int, list[int]]]) -> Floats:
        for number, winners in landed:
            draws.land(number, np.resize(winners, draws.count), np.zeros(5), stamp=next(stamp))
        counts = draws.counts("key", WEIGHTS)
        out = np.zeros((draws.count, NODES_IN_TESTS))
        out[:, counts.nodes] = counts.counts
        return out[:DRAWS_IN_TESTS]

    assert land(kept).tolist() == slowly(kept).tolist()
    with draws.tentatively(lambda: next(stamp)):
        assert land(tried).tolist() == slowly([*kept, *tried]).tolist()
    assert land([]).tolist() == slowly(kept).tolist()


tables = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), min_size=1, max_size=20)


@given(tables)
def test_draws_are_alike_where_all_their_counts_are(table: list[list[int]]) -> None:
    columns = np.array(table, dtype=np.float64)
    groups = alike(len(table), [columns[:, :1], columns[:, 1:]])
    assert sorted(draw for each in groups for draw in each.tolist()) == list(range(len(table)))
    assert [int(each[0]) for each in groups] == sorted(int(each.min()) for each in groups)
    of = {draw: number for number, each in enumerate(groups) for draw in each.tolist()}
    for one in range(len(table)):
        for other in range(len(table)):
            assert (of[one] == of[other]) == (table[one] == table[other])


@given(tables, st.permutations([0, 1]))
def test_neighbours_are_the_same_whatever_the_order_of_columns(table: list[list[int]], order: list[int]) -> None:
    columns = np.array(table, dtype=np.float64)
    most = max(len({tuple(each) for each in table}) - 1, 1)
    groups = neighbours(len(table), [columns], most)
    assert len(groups) == most
    assert sorted(draw for each in groups for draw in each.tolist()) == list(range(len(table)))
    assert all(len(each) for each in groups)
    other = neighbours(len(table), [columns[:, order]], most)
    assert [each.tolist() for each in groups] == [each.tolist() for each in other]


# ---- work


def calls_of(made: ClusterSnapshot, pods: Sequence[int], name: str = "") -> list[int]:
    """Calls of functions for each move, so that the clock of the machine doesn't matter; of all, or of one name."""
    model, calls = PlacementModel(made), []
    for pod in pods:
        profile = cProfile.Profile()
        with profile:
            landing = model.landings(made.pod(pod))
            assert not isinstance(landing, Refusal)
            model.commit(made.pod(pod), model.winners(made.pod(pod), landing))
        stats = profile.getstats()
        calls.append(sum(each.callcount for each in stats if not name or getattr(each.code, "co_name", "") == name))
    return calls


@pytest.mark.parametrize("max_skew", [1, 2])
def test_a_landing_is_as_much_work_after_many_moves_as_after_few(max_skew: int) -> None:
    calls = calls_of(spread_over_zones(12, 48, maxSkew=max_skew), range(48))
    early, late = sum(calls[6:12]), sum(calls[-6:])
    assert late <= 1.5 * early
    # one group of draws is about 400
    assert max(calls) <= 6_000


def test_what_landed_is_ranked_once_for_all_groups() -> None:
    made = spread_over_zones(9, 12, whenUnsatisfiable="ScheduleAnyway", topologyKey=HOSTNAME)
    assert max(calls_of(made, range(12))) > 100 * 100  # there are many groups
    # the rows of the board that changed, and the slots
    assert max(calls_of(made, range(12), "_rank")) <= 3
