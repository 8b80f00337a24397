"""Where kube-scheduler would put the replacement of an evicted pod, with this plan's moves counted.

The result is a distribution: equal scores are equally likely, and above 100 nodes the scheduler scores only a sample.
Landings that are not certain are counted in many draws of the whole sequence (`draws`). A pod whose placement rules are
not modelled is refused.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.replacement import AT_ONCE, newest_siblings
from rebalancer.model.cluster.scheduler import DEFAULT_SCHEDULER, SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.eviction import TargetNode
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.board import Board, Kind
from rebalancer.placement.draws import Draws, Outlook, View, searched_down_to, seeded, views
from rebalancer.placement.engine import Engine, Verdict
from rebalancer.placement.filters import REMOVING_TAINTS, leaving, under_memory_pressure
from rebalancer.placement.nodes import Bools, Floats, Rows, ours_cordoned
from rebalancer.placement.pending import MADE_AFTERWARDS, PendingPods
from rebalancer.placement.scores import missing_bytes

SHOWN_LANDINGS = 8
"""Target nodes that are shown, the likeliest first; all are checked."""
LARGE = 64_000
FEWEST_VIEWS = 12
"""Draws in which pods of one service landed differently are looked at one by one as far as nodes x draws are no more
than LARGE, at least so many."""
LEAST = float(np.finfo(np.float64).min)
MARGIN = 16
"""Nodes that are searched beyond those that a sample needs, at first; in some draws the best ones are taken."""
KEPT, KEPT_NODES = 256, 100_000
"""The most landings that are kept for the next plans of a search, and the most nodes of all of them together: about
half a KiB each."""
YOUNG_SECONDS = 300.0
"""A younger node is still filling up."""


def never() -> bool:
    """No time limit."""
    return False


NOTHING: Rows = np.zeros(0, dtype=np.int64)
NO_SHARES: Floats = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landing:
    """Possible target nodes of a replacement, with this plan's moves counted."""

    nodes: Rows
    """Likeliest first, equal ones by name."""
    shares: Floats
    """Probabilities; together 99.9 % or more where a node is feasible in every draw."""
    feasible: int
    """Number of feasible nodes, without the draws' landings."""
    rows: Rows
    """Nodes (with repeats) that may win in draws without a slot there."""
    row_shares: Floats
    """(rows,) the parts of the probability."""
    slots: Rows
    """Slots of the draws (with repeats) that may win."""
    slot_shares: Floats
    """(slots,) the parts of the probability."""
    outlooks: Sequence[tuple[Outlook, Rows]] = ()
    """Each with the draws of which it decides."""

    def summary(self) -> "Landing":
        """The same without what it was computed from."""
        return replace(self, rows=NOTHING, row_shares=NO_SHARES, slots=NOTHING, slot_shares=NO_SHARES, outlooks=())

    def shown(self, names: Sequence[str]) -> tuple[TargetNode, ...]:
        """The likeliest target nodes, SHOWN_LANDINGS at most; `names` (nodes,)."""
        likeliest = zip(self.nodes[:SHOWN_LANDINGS].tolist(), self.shares[:SHOWN_LANDINGS].tolist(), strict=True)
        return tuple(TargetNode(names[node], min(share, 1.0)) for node, share in likeliest)


class Placed(NamedTuple):
    """A counted landing."""

    node: int
    """The target node where it is certain, else -1."""
    winners: Rows
    """(draws,) the target node in each draw."""
    slots: Rows
    """(draws,) the slot in each draw; empty where the node is certain."""


@dataclass(frozen=True, slots=True)
class _ReplacementView:
    """The evicted pod in the scheduler's view when its replacement is created."""

    without: int | None = None
    terminating: int | None = None


class PlacementModel:
    """The scheduler's view of a snapshot, with this plan's moves counted."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        *,
        config: SchedulerConfig | None = None,
        soft_tainted: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
        young_seconds: float = YOUNG_SECONDS,
    ) -> None:
        """`soft_tainted`, `cordoned` (nodes,): as in `Board`. `closed` (nodes,) are no targets. Pending pods are placed
        until `out_of_time` returns True. Nodes younger than `young_seconds` are no targets."""
        self._snapshot = snapshot
        self._board = Board(snapshot, soft_tainted=soft_tainted, cordoned=cordoned)
        self._engine = Engine(self._board, config)
        # ties are shown by name, so that the order in which nodes are listed changes nothing
        self._name_rank = np.argsort(np.argsort(np.array(snapshot.nodes.names)))
        # not the time: the same cluster looked at again gets the same draws
        self._seed = zlib.crc32("\0".join(sorted(snapshot.nodes.names)).encode())
        pods, active = snapshot.pods, snapshot.active
        self._least_priority = np.full(len(snapshot.nodes), np.iinfo(np.int64).max)
        np.minimum.at(self._least_priority, pods.node[active], pods.priority[active])
        self._like = newest_siblings(snapshot)
        nodes = snapshot.nodes
        self._leaving: Bools = leaving(nodes)
        self._young: Bools = snapshot.taken - nodes.created < young_seconds
        self._pressed = under_memory_pressure(nodes)
        self._unfit: Bools = self._leaving | self._young | self._pressed | ~nodes.ready
        self._states: dict[tuple[int, object], int] = {}
        """State of the model and a change -> number of the state after it."""
        self._landings: dict[tuple[int, frozenset[int], int], Landing | Refusal] = {}
        """State, nodes with our soft taint, pod -> its landing. The plans of a search have much in common."""
        self._kept = min(KEPT, KEPT_NODES // max(len(nodes), 1))
        self._tentative = False
        self._begin(soft_tainted, cordoned, closed, out_of_time)

    def start_over(
        self,
        *,
        soft_tainted: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
    ) -> None:
        """Undo everything that was counted, tainted or cordoned: the model equals a new one with these arguments."""
        self._board.start_over(soft_tainted=soft_tainted, cordoned=cordoned)
        self._engine.start_over()
        self._begin(soft_tainted, cordoned, closed, out_of_time)

    def without_pending(self) -> Engine:
        """The scheduler over the snapshot alone, with no pending pod placed. Undoes everything that was counted."""
        self._board.start_over()
        self._engine.start_over()
        self._kept = 0
        self._landings.clear()
        return self._engine

    def _begin(
        self,
        soft_tainted: Bools | None,
        cordoned: Bools | None,
        closed: Bools | None,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._draws = Draws(len(self._snapshot.nodes))
        self._state = 0
        self._changed(None if cordoned is None else cordoned.tobytes())
        # pending pods are placed under these; later taints leave them there
        self._changed(None if soft_tainted is None else soft_tainted.tobytes())
        self._steered: frozenset[int] = frozenset(() if soft_tainted is None else np.flatnonzero(soft_tainted).tolist())
        self._pending = PendingPods(self._snapshot, self._board, self._engine)
        self._late = self._pending.place(out_of_time)
        self.cordoned = ours_cordoned(self._snapshot) if cordoned is None else cordoned
        """(nodes,) cordoned before the plan."""
        self.closed: Bools = self._unfit | self._board.unschedulable
        """(nodes,) no targets: leaving, cordoned, young, under memory pressure, not Ready, or closed by the caller."""
        if closed is not None:
            self.closed |= closed

    # ---- questions

    def why_closed(self, node: int) -> str:
        """Why a node of `closed` is no target."""
        nodes = self._snapshot.nodes
        if not nodes.ready[node]:
            return "not Ready"
        if self._leaving[node]:
            is_removed = any(taint.key in REMOVING_TAINTS for taint in nodes.taints[node])
            return "an autoscaler is removing it" if is_removed else "cluster-autoscaler may remove it"
        if self._pressed[node]:
            return "under memory pressure"
        if self._young[node]:
            return f"joined {self._snapshot.taken - float(nodes.created[node]):.0f}s ago"
        return "cordoned" if self._board.unschedulable[node] else "its taints are not known for certain"

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) feasible for the replacement, or why that isn't known."""
        kind = self._replacement(pod)
        if (refusal := self._late or self._engine.knows(kind)) is not None:
            return refusal
        masks = [self._feasible(kind, scene) for scene in self._scenes(pod)]
        return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)

    def may_leave(self, pod: Pod) -> bool:
        """Whether the replacement may run on another node by its placement rules, whatever room there is. False where
        they are not modelled."""
        kind = self._replacement(pod)
        if self._engine.knows(kind) is not None:
            return False
        admits = self._engine.admits(kind)
        return bool(np.count_nonzero(admits) > admits[pod.node])

    def landings(self, pod: Pod) -> Landing | Refusal:
        """Where the replacement lands, or why that is nowhere or unknown."""
        if self._late is not None:
            return self._late
        key = self._state, self._steered, pod.index
        if self._tentative or (found := self._landings.get(key)) is None:
            found = self._landing(pod)
            if not self._tentative and len(self._landings) < self._kept:
                self._landings[key] = found
        elif isinstance(found, Landing):
            # of an earlier plan, whose draws went on since
            found = replace(found, outlooks=[(each.among(self._draws), mine) for each, mine in found.outlooks])
        return found

    def _landing(self, pod: Pod) -> Landing | Refusal:
        kind = self._replacement(pod)
        if (refusal := self._engine.knows(kind)) is not None:
            return refusal
        scenes = self._scenes(pod)
        outlooks: list[tuple[Outlook, Rows, float]] = []
        turns = np.arange(self._draws.count) % len(scenes)
        if len(scenes) > 1:
            # draws take turns where the order of leaving and arriving isn't known, and others for each pod: the shares
            # take the orders of different pods as independent
            turns = seeded(self._seed, f"{pod.namespace}/{pod.name}/order").permutation(turns)
        for at, scene in enumerate(scenes):
            mine = turns == at
            for outlook, part in self._outlooks(kind, scene):
                outlooks.append((outlook, mine[outlook.draws], part / len(scenes)))
        feasible = max(each.total for each, _, _ in outlooks)
        if not feasible:
            return self._homeless(pod, kind)
        rows = np.concatenate([each.nodes for each, _, _ in outlooks])
        row_shares = np.concatenate([each.shares * part for each, _, part in outlooks])
        slots = np.concatenate([each.slots for each, _, _ in outlooks])
        slot_shares = np.concatenate([each.slot_shares * part for each, _, part in outlooks])
        if len(outlooks) == 1 and not len(slots):
            nodes, shares = rows[row_shares > 0], row_shares[row_shares > 0]
        else:
            total = np.bincount(rows, weights=row_shares, minlength=len(self._name_rank))
            total += np.bincount(self._draws.node[slots], weights=slot_shares, minlength=len(total))
            nodes = np.flatnonzero(total > 0)
            shares = total[nodes]
        if not len(nodes):  # in every draw the earlier replacements took the room
            return self._homeless(pod, kind)
        order = np.lexsort((self._name_rank[nodes], -np.round(shares, 12)))
        return Landing(
            nodes=nodes[order],
            shares=shares[order],
            feasible=feasible,
            rows=rows,
            row_shares=row_shares,
            slots=slots,
            slot_shares=slot_shares,
            outlooks=[(each, mine) for each, mine, _ in outlooks],
        )

    def _outlooks(self, kind: Kind, scene: "_ReplacementView") -> Iterator[tuple[Outlook, float]]:
        """The outlook of each group of draws, with the group's share of the draws."""
        engine, draws = self._engine, self._draws
        landed: list[tuple[int, Rows]] = []
        if draws.landed and not draws.kinds.isdisjoint(matters := engine.matters(kind)):
            landed = [each for each in draws.landed if each[0] in matters]
        domains = [self._board.nodes.domains(key).at for key in sorted(engine.domain_keys(kind))] if landed else []
        groups = views(draws.count, landed, domains, max(LARGE // len(self._name_rank), FEWEST_VIEWS), self._name_rank)
        for changes, members in groups:
            inside = None
            if len(groups) > 1:
                inside = np.zeros(draws.count, dtype=np.bool_)
                inside[members] = True
            with self._board.seen_with(changes) if changes else nullcontext():
                margin = MARGIN
                while True:
                    outlook = self._outlook(kind, scene, members, inside, landed, changes, margin)
                    if outlook.complete:
                        break
                    margin *= 4
            yield outlook, len(members) / draws.count

    def _outlook(
        self,
        kind: Kind,
        scene: "_ReplacementView",
        members: Rows,
        inside: Bools | None,
        landed: Sequence[tuple[int, Rows]],
        changes: Sequence[tuple[int, int]],
        margin: int,
    ) -> Outlook:
        """Of the draws `members`; `inside` (draws,) is their mask, None for all."""
        engine, draws = self._engine, self._draws
        count = engine.feasible_count(kind, without=scene.without, terminating=scene.terminating)
        if not count:
            none = np.full(len(self._name_rank), -np.inf)
            nothing = View(draws=members, scores=none, slots=NOTHING, drawn=NO_SHARES, sample=0, worst=0.0)
            return Outlook(nothing, draws, self._name_rank)
        scores = engine.scores(kind, without=scene.without, terminating=scene.terminating)
        sample = engine.sample_size(kind, count)
        slots, drawn = NOTHING, NO_SHARES
        worst = searched_down_to(scores, sample, margin)
        if draws.size:
            close = (scores >= max(worst - engine.most_gain(kind), LEAST))[draws.node]
            slots = np.flatnonzero(close if inside is None else close & inside[draws.draw])
            drawn = engine.with_draws(kind, draws, slots, without=scene.without, terminating=scene.terminating)
            self._close_unseen(drawn, slots, landed, changes)
        view = View(draws=members, scores=scores, slots=slots, drawn=drawn, sample=sample, worst=worst)
        return Outlook(view, draws, self._name_rank)

    def _close_unseen(
        self, drawn: Floats, slots: Rows, landed: Sequence[tuple[int, Rows]], changes: Sequence[tuple[int, int]]
    ) -> None:
        """In a draw that another one stands for, such a pod's node is taken as closed to the next."""
        node, draw = self._draws.node[slots], self._draws.draw[slots]
        for (_, winners), (_, counted) in zip(landed, changes, strict=True):
            own = winners[draw]
            drawn[(node == own) & (own != counted)] = -np.inf

    def pending_takes(self, pod: Pod) -> Refusal | None:
        """Why a pending pod that fits nowhere else would take the room of this pod, or None."""
        found = self._pending.taking(self._board.kind_of(pod.index), pod.node)
        if found is None:
            return None
        waiting = self._snapshot.pod(found)
        scheduler = waiting.template.scheduler_name
        whose = "" if scheduler == DEFAULT_SCHEDULER else f" (schedulerName {scheduler})"
        return Refusal.of(
            Reason.PENDING_TAKES_ROOM, f"{waiting}{whose} fits nowhere else; until it is bound or deleted"
        )

    def pull_bytes(self, pod: Pod, nodes: Rows) -> float:
        """The most bytes that any of these nodes would have to pull; images that no node has reported count 0."""
        snapshot = self._snapshot
        missing = missing_bytes(snapshot.nodes.images, pod.template, nodes, len(snapshot.nodes))
        return float(missing.max(initial=0.0))

    def explain(self, pod: Pod) -> Verdict:
        """The scheduler's view of every node for this pod's replacement. For a pending pod, its view of the pod itself
        before any pending pod is placed: then everything that was counted is undone."""
        kind = self._replacement(pod)
        if pod.node < 0:
            return self.without_pending().verdict(kind)
        scene = self._scenes(pod)[0]
        return self._engine.verdict(kind, without=scene.without, terminating=scene.terminating)

    # ---- this plan's moves

    def winners(self, pod: Pod, landing: Landing) -> Rows:
        """(draws,) the target node in each draw. The same whenever it is asked."""
        random = seeded(self._seed, f"{pod.namespace}/{pod.name}")
        winners = np.full(self._draws.count, -1, dtype=np.int64)
        for outlook, mine in landing.outlooks:
            found = outlook.land(random)
            winners[outlook.draws[mine]] = found[mine]
        # in a draw in which it fits nowhere it is counted where it most likely goes
        winners[winners < 0] = landing.nodes[0]
        return winners

    def commit(self, pod: Pod, winners: Rows) -> Placed:
        """Count an eviction whose replacement lands on these nodes (draws,)."""
        self._changed((pod.index, winners.tobytes()))
        kind = self._replacement(pod)
        self._board.take_out(self._board.kind_of(pod.index), pod.node, terminating=pod.terminating)
        if (winners == winners[0]).all():
            return self._put(kind, int(winners[0]))
        number = self._board.number_of(kind)
        slots = self._draws.land(number, winners, self._board.demand[number], stamp=self._board.stamp())
        return Placed(-1, winners, slots)

    def _put(self, kind: Kind, node: int) -> Placed:
        self._board.put(kind, np.array([node]), np.ones(1))
        return Placed(node, np.full(self._draws.count, node, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @property
    def draws(self) -> Draws:
        """The landings of this plan that are not certain."""
        return self._draws

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """See these nodes with our soft taint from now on, or without it."""
        self._steered = self._steered.union(nodes) if away else self._steered.difference(nodes)
        self._engine.steer(nodes, away=away)

    def cordon(self, node: int) -> None:
        """See this node as cordoned from now on."""
        self._changed(("cordon", node))
        self._engine.cordon(node)
        self.closed[node] = True

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """See the node as cordoned inside, and undo at the end what is committed there."""
        before, state = self._engine.cordon(node), self._state
        self._tentative = True
        try:
            with self._board.tentatively(), self._draws.tentatively(self._board.stamp):
                yield
        finally:
            self._engine.cordon(node, cordoned=before)
            self._state, self._tentative = state, False

    def _changed(self, change: object) -> None:
        """Enter the state after a change."""
        self._state = self._states.setdefault((self._state, change), len(self._states) + 1)

    # ---- scenes

    def _replacement(self, pod: Pod) -> Kind:
        """The kind of the replacement: where an owner's pods are all alike, that of the newest of them."""
        alike = pod.node >= 0 and pod.owner is not None and pod.owner.kind in AT_ONCE
        return self._board.kind_of(int(self._like[pod.index]) if alike else pod.index)

    def _scenes(self, pod: Pod) -> list[_ReplacementView]:
        """A ReplicaSet creates the replacement at once, while the old pod terminates; a StatefulSet only afterwards.
        A pod with an exclusive claim is placed afterwards too. For other owners both are assumed."""
        if pod.node < 0:
            return [_ReplacementView()]
        kind = pod.owner.kind if pod.owner is not None else ""
        after = _ReplacementView(without=pod.node)
        # spreading doesn't count a pod that is terminating already
        while_it_goes = _ReplacementView() if pod.terminating else _ReplacementView(terminating=pod.node)
        if kind in MADE_AFTERWARDS or self._uses_exclusive_claim(pod):
            return [after]
        return [while_it_goes] if kind in AT_ONCE else [after, while_it_goes]

    def _uses_exclusive_claim(self, pod: Pod) -> bool:
        exclusive = self._snapshot.exclusive_claims
        return bool(exclusive) and any(
            (pod.namespace, str(volume.persistent_volume_claim.get("claimName", ""))) in exclusive
            for volume in pod.template.volumes
            if volume.persistent_volume_claim is not None
        )

    def _feasible(self, kind: Kind, scene: _ReplacementView) -> Bools:
        return self._engine.feasible(kind, without=scene.without, terminating=scene.terminating)

    def _homeless(self, pod: Pod, kind: Kind) -> Refusal:
        lower = self._engine.statically_feasible(kind) & (self._least_priority < pod.priority)
        return Refusal.of(Reason.NEEDS_PREEMPTION if lower.any() else Reason.NO_TARGET_NODE)
