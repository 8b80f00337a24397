"""Placement in the simulated cluster, by the model of kube-scheduler.

The model's board is kept and changed pod by pod. It is made again when nodes change, and once a day. Draws among nodes
of equal score depend on the seed, the load and how often it was placed, so that two runs that differ in one decision
still draw alike for everything else.
"""

import zlib
from collections.abc import Collection

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.model.notation.figures import percent
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Kind
from rebalancer.placement.draws.sampling import winners
from rebalancer.placement.scheduler.engine import Engine
from rebalancer.replay.simulation.loads import Wide
from rebalancer.replay.simulation.snapshots import Snapshots
from rebalancer.replay.simulation.state import ClusterState

ENOUGH = 0.9999
"""Nodes are drawn among those that win with this probability together."""
NOWHERE = -1


class Scheduling:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        snapshots: Snapshots,
        *,
        seed: int,
        config: SchedulerConfig,
        as_recorded: bool,
        unsure: Collection[str],
    ) -> None:
        """`as_recorded`: a pod goes to its recorded node if it fits there. `unsure`: UIDs of recorded pods for which
        the model can't tell the node, as it differs from the record where everything else is as recorded. Times are
        known to a minute only, and taints of that time not at all."""
        self._follows_record = as_recorded
        self._unsure = unsure
        self.disagreed: set[str] = set()
        """UIDs of recorded pods that are on their node although the model would have placed them elsewhere."""
        self._state, self._snapshots = state, snapshots
        self._seed = seed
        self._config = config
        self._made_for = (-1, -1)
        self._engine: Engine | None = None
        self._nodes: Wide = np.zeros(0, dtype=np.int64)
        self._row: dict[int, int] = {}
        self._refused: dict[tuple[object, ...], int] = {}
        self.placed = 0
        """Pods that the model has placed."""
        self.by_record = 0
        """Pods that were placed where they had been, because the model doesn't know their scheduler or volumes."""

    def place(self, row: int) -> int:
        """The node of a pod that arrives, NOWHERE if none has room. The board counts it from then on."""
        state = self._state
        load = int(state.pods.load[row])
        if state.loads.fixed[load]:
            return self._as_recorded(load)
        engine, kind = self._current(), self._kind(load)
        if engine.knows(kind) is not None:
            self.by_record += 1
            return self._as_recorded(load)
        count = engine.feasible_count(kind)
        if not count:
            self._refused[engine.rules(kind).filter_class] = engine.board.version
            return NOWHERE
        self.placed += 1
        nodes, shares = winners(engine.scores(kind), engine.sample_size(kind, count), enough=ENOUGH)
        chosen = self._drawn(row, nodes, shares)
        engine.board.put(kind, np.array([chosen]), np.ones(1))
        return int(self._nodes[chosen])

    def _drawn(self, row: int, nodes: Rows, shares: Floats) -> int:
        """One of the nodes that may win. The recorded node is one draw of the real scheduler, so a pod that arrives as
        recorded goes there if it may win, or if the model can't tell for this pod."""
        pod, uids = int(self._state.pods.recorded[row]), self._state.recording.pods.uids
        if pod >= 0:
            recorded = self._row.get(int(self._state.recording.pods.node[pod]), NOWHERE)
            if recorded in nodes:
                return recorded
            if recorded >= 0 and self._current().feasible(self._kind(int(self._state.pods.load[row])))[recorded]:
                if self._follows_record:
                    self.disagreed.add(uids[pod])
                    return recorded
                if uids[pod] in self._unsure:
                    return recorded
        load = int(self._state.pods.load[row])
        first, number = int(self._state.loads.pod[load]), int(self._state.replacements[load])
        random = np.random.default_rng((self._seed, zlib.crc32(uids[first].encode()), number))
        drawn = int(np.searchsorted(np.cumsum(shares / shares.sum()), random.random()))
        return int(nodes[min(drawn, len(nodes) - 1)])

    def notes(self) -> tuple[str, ...]:
        """Where pods were placed otherwise than by the model."""
        out = []
        if self.by_record:
            pods = self.by_record + self.placed
            out.append(
                f"{self.by_record} of {pods} placed pods ({percent(self.by_record / pods)}) went where they had been: "
                "their scheduler or volumes are not modelled. Also after an eviction they come back to the recorded "
                "node, and the room there is as recorded, so the result is nearer to the recorded run than it would "
                "have been"
            )
        if self.disagreed:
            out.append(
                f"kube-scheduler's model would have placed {len(self.disagreed)} of {self.placed} pods elsewhere; in "
                "every run they go where they went"
            )
        return tuple(out)

    def may_fit(self, row: int) -> bool:
        """False where nothing has changed since a pod like this one found no node."""
        load = int(self._state.pods.load[row])
        if self._state.loads.fixed[load]:
            return True
        engine, kind = self._current(), self._kind(load)
        return self._refused.get(engine.rules(kind).filter_class) != engine.board.version

    def leaves(self, row: int) -> None:
        """A bound pod has left its node."""
        if self._engine is None or self._made_for != self._wanted():
            return
        state = self._state
        node = self._row.get(int(state.pods.node[row]), NOWHERE)
        if node >= 0:
            self._engine.board.take_out(self._kind(int(state.pods.load[row])), node)

    def _as_recorded(self, load: int) -> int:
        state = self._state
        node = int(state.recording.pods.node[state.loads.pod[load]])
        if node < 0 or not state.nodes.there[node]:
            return NOWHERE
        at = self._row.get(node, NOWHERE)
        if self._engine is not None and self._made_for == self._wanted() and at >= 0:
            self._engine.board.put(self._kind(load), np.array([at]), np.ones(1))
        return node

    def _kind(self, load: int) -> Kind:
        pods, pod = self._state.recording.pods, int(self._state.loads.pod[load])
        return Kind(int(pods.template[pod]), int(pods.namespace[pod]), int(pods.owner[pod]))

    def _wanted(self) -> tuple[int, int]:
        state = self._state
        return state.nodes.version, int((state.now - state.recording.start) // DAY_SECONDS)

    def _current(self) -> Engine:
        wanted = self._wanted()
        if self._engine is None or self._made_for != wanted:
            state = self._state
            day = state.recording.start + wanted[1] * DAY_SECONDS
            loads = state.loads
            coming = np.flatnonzero((loads.created < day + DAY_SECONDS) & (loads.ended > state.now))
            snapshot = self._snapshots.for_scheduler(self._one_of_each(coming))
            self._nodes = np.flatnonzero(state.nodes.there)
            self._row = {int(node): at for at, node in enumerate(self._nodes.tolist())}
            self._engine = Engine(Board(snapshot), self._config)
            self._made_for = wanted
            self._refused = {}
        return self._engine

    def _one_of_each(self, loads: Wide) -> Wide:
        """One load of each kind."""
        pods = self._state.recording.pods
        rows = self._state.loads.pod[loads]
        kinds = np.column_stack([pods.template[rows], pods.namespace[rows], pods.owner[rows]])
        _, first = np.unique(kinds, axis=0, return_index=True)
        return loads[np.sort(first)]
