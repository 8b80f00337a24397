"""Where kube-scheduler would put the replacement of an evicted pod, with this plan's moves counted.

The result is a distribution: equal scores are equally likely, and above 100 nodes the scheduler scores only a sample.
Landings that are not certain are counted in many draws of the whole sequence (`draws`). A pod whose placement rules are
not modelled is refused.
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from rebalancer.model.cluster.scheduler import DEFAULT_SCHEDULER, SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.cluster.steering import ours_cordoned, ours_soft_tainted
from rebalancer.model.notation.arrays import Bools, Ints, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Kind, PodKinds
from rebalancer.placement.cluster.taints import under_memory_pressure
from rebalancer.placement.draws.draws import Draws, seeded
from rebalancer.placement.draws.outlook import Outlook
from rebalancer.placement.landing.landing import Landing, Placed, landing_of
from rebalancer.placement.landing.outlooks import Outlooks
from rebalancer.placement.landing.pending import MADE_AFTERWARDS, DisplacedLandings, PendingPods
from rebalancer.placement.landing.replacements import Replacements
from rebalancer.placement.plugins.followers import Followers, Following
from rebalancer.placement.plugins.images import missing_bytes
from rebalancer.placement.scheduler.engine import Engine, Verdict

KEPT, KEPT_NODES = 256, 100_000
"""The most landings that are kept for the next plans of a search, and the most nodes of all of them together: about
half a KiB each."""
NO_PODS: Ints = np.zeros(0, dtype=np.int32)

YOUNG_SECONDS = 300.0
"""A younger node is still filling up."""


def never() -> bool:
    """No time limit."""
    return False


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
        removed: Mapping[int, str] | None = None,
        displaced: Bools | None = None,
        relieved: Collection[int] = (),
    ) -> None:
        """`soft_tainted`, `cordoned` (nodes,): as in `Board`. `closed` (nodes,) are no targets. Pending pods are placed
        until `out_of_time` returns True. Nodes younger than `young_seconds` are no targets. `removed`: index of each
        node that is or may be removed -> why it is no target. `displaced` (pods,) will have to land again: their nodes
        are about to go; soft taints will keep them off these `relieved` nodes."""
        self._snapshot = snapshot
        self._board = Board(snapshot)
        self._engine = Engine(self._board, config)
        # ties are shown by name, so that the order in which nodes are listed changes nothing
        self._name_rank = np.argsort(np.argsort(np.array(snapshot.nodes.names)))
        # not the time: the same cluster looked at again gets the same draws
        self._seed = zlib.crc32("\0".join(sorted(snapshot.nodes.names)).encode())
        pods, active = snapshot.pods, snapshot.active
        self._least_priority = np.full(len(snapshot.nodes), np.iinfo(np.int64).max)
        np.minimum.at(self._least_priority, pods.node[active], pods.priority[active])
        self._following = Following(self._board, self._engine.terms)
        self._replacements = Replacements(snapshot, self._board.kinds)
        nodes = snapshot.nodes
        self._removed: Mapping[int, str] = removed or {}
        self.due = DisplacedLandings()
        """Of displaced pods, under the taints and cordons of the snapshot, and soft taints on relieved nodes."""
        self._young: Bools = snapshot.taken - nodes.created < young_seconds
        self._pressed = under_memory_pressure(nodes)
        self._unfit: Bools = self._young | self._pressed | ~nodes.ready
        self._unfit[list(self._removed)] = True
        self._states: dict[tuple[int, object], int] = {}
        """State of the model and a change -> number of the state after it."""
        self._landings: dict[tuple[int, frozenset[int], int], Landing | Refusal] = {}
        """State, nodes with our soft taint, pod -> its landing. The plans of a search have much in common."""
        self._kept = min(KEPT, KEPT_NODES // max(len(nodes), 1))
        self._tentative = False
        if displaced is not None and displaced.any():
            tainted = ours_soft_tainted(nodes)
            tainted[list(relieved)] = True
            self.start_over(soft_tainted=tainted, out_of_time=out_of_time)
            self.due = self._pending.land_displaced(np.flatnonzero(displaced).astype(np.int32), out_of_time)
        self.start_over(soft_tainted=soft_tainted, cordoned=cordoned, closed=closed, out_of_time=out_of_time)

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
        self._draws = Draws(len(self._snapshot.nodes))
        self._outlooks = Outlooks(self._board, self._engine, self._draws, self._name_rank)
        self._state = 0
        self._changed(None if cordoned is None else cordoned.tobytes())
        # pending pods are placed under these; later taints leave them there
        self._changed(None if soft_tainted is None else soft_tainted.tobytes())
        self._steered: frozenset[int] = frozenset(() if soft_tainted is None else np.flatnonzero(soft_tainted).tolist())
        self._pending = PendingPods(self._snapshot, self._board, self._engine)
        self._late = self._pending.place(out_of_time)
        for kind, pod in self.due.homeless:
            self._pending.keep(kind, pod)
        self.cordoned = ours_cordoned(self._snapshot.nodes) if cordoned is None else cordoned
        """(nodes,) cordoned before the plan."""
        self.closed: Bools = self._unfit | self._board.unschedulable
        """(nodes,) no targets: leaving, cordoned, young, under memory pressure, not Ready, or closed by the caller."""
        if closed is not None:
            self.closed |= closed

    def without_pending(self) -> Engine:
        """The scheduler over the snapshot alone, with no pending pod placed. Undoes everything that was counted."""
        self._board.start_over()
        self._engine.start_over()
        self._kept = 0
        self._landings.clear()
        return self._engine

    # ---- questions

    def why_closed(self, node: int) -> str:
        """Why a node of `closed` is no target."""
        nodes = self._snapshot.nodes
        if not nodes.ready[node]:
            return "not Ready"
        if node in self._removed:
            return self._removed[node]
        if self._pressed[node]:
            return "under memory pressure"
        if self._young[node]:
            return f"joined {self._snapshot.taken - float(nodes.created[node]):.0f}s ago"
        return "cordoned" if self._board.unschedulable[node] else "its taints are not known for certain"

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) feasible for the replacement, or why that isn't known."""
        kind = self._replacements.kind_of(pod)
        if (refusal := self._late or self._engine.knows(kind)) is not None:
            return refusal
        masks = [self._engine.feasible(kind, each) for each in self._replacements.departures(pod)]
        return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)

    def may_leave(self, pod: Pod) -> bool:
        """Whether the replacement may run on another node by its placement rules, whatever room there is. False where
        they are not modelled."""
        kind = self._replacements.kind_of(pod)
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
        kind = self._replacements.kind_of(pod)
        if (refusal := self._engine.knows(kind)) is not None:
            return refusal
        departures = self._replacements.departures(pod)
        outlooks: list[tuple[Outlook, Rows, float]] = []
        turns = np.arange(self._draws.count) % len(departures)
        if len(departures) > 1:
            # draws take turns where the order of leaving and arriving isn't known, and others for each pod: the shares
            # take the orders of different pods as independent
            turns = seeded(self._seed, f"{pod.namespace}/{pod.name}/order").permutation(turns)
        for at, departure in enumerate(departures):
            mine = turns == at
            for outlook, part in self._outlooks.of(kind, departure):
                outlooks.append((outlook, mine[outlook.draws], part / len(departures)))
        return landing_of(outlooks, self._draws, self._name_rank) or self._homeless(pod, kind)

    def followers(self, pod: Pod, targets: Rows | None = None, *, leaving: Ints = NO_PODS) -> Followers | None:
        """Pods that the eviction would leave without the pod that they need; arguments as in `Following.left_by`."""
        others = leaving[leaving != pod.index]
        return self._following.left_by(pod.index, pod.node, targets, leaving=others)

    def pending_takes(self, pod: Pod) -> Refusal | None:
        """Why a pending pod that fits nowhere else would take the room of this pod, or None."""
        found = self._pending.taking(self._board.kinds.of(pod.index), pod.node)
        if found is None:
            return None
        waiting = self._snapshot.pod(found)
        scheduler = waiting.template.scheduler_name
        whose = "" if scheduler == DEFAULT_SCHEDULER else f" (schedulerName {scheduler})"
        until = "until it is bound or deleted"
        if waiting.node >= 0:
            until = f"its node {waiting.node_name} is about to go"
        return Refusal.of(Reason.PENDING_TAKES_ROOM, f"{waiting}{whose} fits nowhere else; {until}")

    def pull_bytes(self, pod: Pod, nodes: Rows) -> float:
        """The most bytes that any of these nodes would have to pull; images that no node has reported count 0."""
        snapshot = self._snapshot
        missing = missing_bytes(snapshot.nodes.images, pod.template, nodes, len(snapshot.nodes))
        return float(missing.max(initial=0.0))

    def explain(self, pod: Pod) -> Verdict:
        """The scheduler's view of every node for this pod's replacement. For a pending pod, its view of the pod itself
        before any pending pod is placed: then everything that was counted is undone."""
        kind = self._replacements.kind_of(pod)
        if pod.node < 0:
            return self.without_pending().verdict(kind)
        return self._engine.verdict(kind, self._replacements.departures(pod)[0])

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
        kind = self._replacements.kind_of(pod)
        self._board.take_out(self._board.kinds.of(pod.index), pod.node, terminating=pod.terminating)
        if (winners == winners[0]).all():
            return self._put(kind, int(winners[0]))
        number = self._board.kinds.number_of(kind)
        slots = self._draws.land(number, winners, self._board.kinds.demand[number], stamp=self._board.stamp())
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
        before = self._engine.cordon(node)
        try:
            with self.tentatively():
                yield
        finally:
            self._engine.cordon(node, cordoned=before)

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is committed inside."""
        state, self._tentative = self._state, True
        try:
            with self._board.tentatively(), self._draws.tentatively(self._board.stamp):
                yield
        finally:
            self._state, self._tentative = state, False

    # ---- room for a pending pod

    def has_soft_taint(self, node: int) -> bool:
        """Whether the node is seen with our soft taint."""
        return node in self._steered

    def lacking(self, pod: Pod, node: int) -> Mapping[str, float]:
        """Resource that the pod requests -> how much of it is missing on the node; negative where some is left."""
        return self._engine.rules(self._board.kinds.of(pod.index)).requests.lacking_on(node)

    @property
    def kinds(self) -> PodKinds:
        """The kinds of the snapshot's pods."""
        return self._board.kinds

    def admitted(self, pod: Pod) -> Bools:
        """(nodes,) that would take a pending pod if they had room, and are no closed ones."""
        admitted: Bools = self._engine.statically_feasible(self._board.kinds.of(pod.index)) & ~self.closed
        return admitted

    def fits_on(self, pod: Pod, node: int) -> bool:
        """Whether a pending pod passes every filter of the node."""
        return self._engine.fits(self._board.kinds.of(pod.index), node)

    def fits_without_terminating(self, pod: Pod) -> int | None:
        """A node on which a pending pod fits once all terminating pods are gone, or None."""
        snapshot, kinds = self._snapshot, self._board.kinds
        going = np.flatnonzero(snapshot.active & snapshot.pods.terminating & (snapshot.pods.node >= 0))
        with self._board.tentatively():
            for each in going.tolist():
                owner = int(snapshot.pods.owner[each])
                # the place of these was given to their successors
                if owner < 0 or snapshot.owners[owner].kind not in MADE_AFTERWARDS:
                    self._board.take_out(kinds.of(each), int(snapshot.pods.node[each]), terminating=True)
            found = np.flatnonzero(self._engine.feasible(kinds.of(pod.index)) & ~self.closed)
        return int(found[np.argmin(self._name_rank[found])]) if len(found) else None

    def rivals(self, pod: Pod, node: int, *, earlier: bool) -> Refusal | None:
        """Why the room on the node may go to another pending pod; `earlier` as in `PendingPods.rivals`."""
        other = self._pending.rivals(pod.index, node, earlier=earlier)
        if other is None:
            return None
        return Refusal.of(Reason.PENDING_TAKES_ROOM, f"{self._snapshot.pod(other)} fits nowhere else")

    def settle(self, pod: Pod, node: int) -> None:
        """Count a pending pod that fitted nowhere as bound to the node."""
        self._changed(("settle", pod.index, node))
        self._pending.settle(self._board.kinds.of(pod.index), node)

    def _changed(self, change: object) -> None:
        """Enter the state after a change."""
        self._state = self._states.setdefault((self._state, change), len(self._states) + 1)

    def _homeless(self, pod: Pod, kind: Kind) -> Refusal:
        lower = self._engine.statically_feasible(kind) & (self._least_priority < pod.priority)
        return Refusal.of(Reason.NEEDS_PREEMPTION if lower.any() else Reason.NO_TARGET_NODE)
