"""The planner: one move at a time, so that what is refused later makes it go on with the next best.

    while move := planner.next_move():
        ... admit, evict ...
        planner.accept(move)   or   planner.reject(move, refusal)

It works through the findings hottest first. For each it takes the best candidate that may go (guards, budgets,
admission's headroom) and whose landing is known to hold: every node where kube-scheduler may put the replacement (the
landings that make up 99 %) must stay at or under its target, with all earlier moves of this plan counted in. It stops
at the target. The same input gives the same plan, in whatever order nodes and pods are listed.

With a `SteeringBudget` it is a rehearsal: nodes that stand in a landing's way get our soft taint, as far as that goes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.budgets import BudgetRoom
from rebalancer.constraints.door import Door
from rebalancer.model.plan import Finding, Move, PodRefusal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.landing import YOUNG_SECONDS, Distribution, LandingModel, Likely
from rebalancer.planner.order import order_key, reliefs
from rebalancer.planner.steering import SteeringBudget
from rebalancer.planner.targets import TargetRoom
from rebalancer.strategies.view import Findings

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MIN_RELIEF = 0.02
"""A move that takes away less than this share of the excess is harm for nothing."""

STEERINGS_AT_MOST = 8
"""For one pod: when so many rounds of taints don't free its landing, more won't."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One finding being worked on."""

    finding: Finding
    room: TargetRoom
    left: list[Pod]
    """Candidates that are not decided yet."""


def _never() -> bool:
    return False


class Planner:
    """See the module. Not thread-safe; used for one cycle."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        found: Sequence[Findings],
        door: Door,
        cpu_millicores: Floats,
        pools: Sequence[str],
        config: SchedulerConfig = SchedulerConfig(),  # noqa: B008 - frozen
        steered: Bools | None = None,
        steering: SteeringBudget | None = None,
        out_of_time: Callable[[], bool] = _never,
        closed: Bools | None = None,
        young_seconds: float = YOUNG_SECONDS,
    ) -> None:
        """`cpu_millicores` (pods,) is the real CPU that moves are recorded with; NaN where unknown. `pools` (nodes,)
        names of the nodes' pools, empty for none. `steered` (nodes,) carry our taint while the plan runs; None = as
        the snapshot shows. Once `out_of_time` says so, nothing more is planned. `closed` (nodes,) may not be landed
        on besides those that the model closes; nor may nodes that are younger than `young_seconds`."""
        self._snapshot = snapshot
        self.door = door
        self._cpu = cpu_millicores
        self._pools = pools
        self._steering = steering
        self._out_of_time = out_of_time
        self._landing = LandingModel(
            snapshot, config=config, steered=steered, out_of_time=out_of_time, young_seconds=young_seconds
        )
        self._budgets = BudgetRoom(snapshot)
        if closed is not None:
            self._landing.closed |= closed
        self._rooms = [TargetRoom(each.loads, self._landing.closed) for each in found]
        self._refused: dict[int, Refusal] = {}
        self._moved: set[int] = set()
        self._landings_of: dict[int, Distribution] = {}
        self._jobs = self._each_job(found)
        self._job: _Job | None = next(self._jobs, None)

    # ---- the loop

    def next_move(self) -> Move | None:
        """The best move left, or None when nothing is left to do. It is counted only when accepted."""
        while self._job is not None:
            if self._out_of_time():
                self.stop(Refusal.of(Reason.OUT_OF_TIME))
                return None
            if (move := self._best(self._job)) is not None:
                return move
            self._job = next(self._jobs, None)
        return None

    def accept(self, move: Move) -> None:
        """Count a move that happened, may have happened, or would in a real run."""
        pod, landing = self._snapshot.pod(move.pod), self._landings_of[move.pod]
        self._moved.add(move.pod)
        self._landing.commit(pod, landing)
        self._budgets.take(pod)
        for room in self._rooms:
            loads = room.loads
            room.shift(
                np.nan_to_num(loads.pod[move.pod]),
                move.node,
                landing,
                kind=self._kind(pod),
                relief=np.nan_to_num(loads.relieved[move.pod]),
            )
        self._drop(move.pod)

    def reject(self, move: Move, refusal: Refusal) -> None:
        """Note why a move was refused after all; the planner goes on with the next best."""
        self._refused[move.pod] = refusal
        if refusal.code in (Reason.SERVER_BUDGET, Reason.SERVER_SEVERAL_BUDGETS):
            self._budgets.close(self._snapshot.pod(move.pod))
        self._drop(move.pod)

    def stop(self, refusal: Refusal) -> None:
        """End the plan here: whatever was not decided yet is refused with this reason."""
        job: _Job | None = self._job
        while job is not None:
            self._refused.update((pod.index, refusal) for pod in job.left)
            job = next(self._jobs, None)
        self._job = None

    def _drop(self, pod: int) -> None:
        if self._job is not None:
            self._job.left = [each for each in self._job.left if each.index != pod]

    # ---- what came of it

    def refusals(self) -> list[PodRefusal]:
        """Every candidate that was not taken, with its reason, by node and name."""
        out = []
        pods, snapshot = self._snapshot.pods, self._snapshot
        for index, refusal in self._refused.items():
            if index in self._moved:
                continue
            out.append(
                PodRefusal(
                    node=snapshot.nodes.names[pods.node[index]],
                    namespace=snapshot.namespaces[pods.namespace[index]],
                    name=pods.names[index],
                    code=refusal.code,
                    message=refusal.message,
                    next_at=refusal.next_at,
                    cpu_millicores=float(self._cpu[index]) if np.isfinite(self._cpu[index]) else None,
                )
            )
        return sorted(out, key=lambda each: (each.node, each.namespace, each.name))

    def planned_load(self, strategy: int = 0) -> Floats:
        """(nodes, resources) loads of the given strategy's findings, with each replacement spread by its shares."""
        return self._rooms[strategy].expected

    # ---- one finding

    def _each_job(self, found: Sequence[Findings]) -> Iterator[_Job]:
        for findings, room in zip(found, self._rooms, strict=True):
            for finding in findings.findings:
                yield _Job(finding=finding, room=room, left=self._may_go(finding, room))

    def _may_go(self, finding: Finding, room: TargetRoom) -> list[Pod]:
        """The candidates that no guard protects and whose move would help."""
        left: list[Pod] = []
        relief, _ = reliefs(room.loads.relieved[finding.candidates], room.excess(finding.node))
        reached = room.reached(finding.node)
        full = not room.low.any()
        for index, share in zip(finding.candidates.tolist(), relief.tolist(), strict=True):
            if index in self._moved:
                continue
            pod = self._snapshot.pod(index)
            refusal = self.door.stays(pod, pool=finding.pool)
            if refusal is None and reached:
                refusal = Refusal.of(Reason.GOAL_REACHED)
            if refusal is None and math.isnan(share):
                refusal = Refusal.of(Reason.NO_POD_USAGE)
            if refusal is None and share < MIN_RELIEF:
                refusal = Refusal.of(Reason.NO_RELIEF, f"{share:.1%} of the excess")
            if refusal is None and full:
                refusal = Refusal.of(Reason.POOL_FULL)
            if refusal is None:
                left.append(pod)
            else:
                self._refused[pod.index] = refusal
        return left

    def _best(self, job: _Job) -> Move | None:
        """The best admissible move of a finding. A landing on a node under `low` comes before a warmer one."""
        node, room = job.finding.node, job.room
        if room.reached(node):
            for pod in job.left:
                self._refused.setdefault(pod.index, Refusal.of(Reason.GOAL_REACHED))
            return None
        relief, overshoot = reliefs(room.loads.relieved[[pod.index for pod in job.left]], room.excess(node))
        keys = [
            order_key(pod, share, over, self.door.traits(pod).cost)
            for pod, share, over in zip(job.left, relief.tolist(), overshoot.tolist(), strict=True)
        ]
        job.left = [pod for _, pod in sorted(zip(keys, job.left, strict=True), key=itemgetter(0))]
        warmer: Move | None = None
        undecided: list[Pod] = []
        for at, pod in enumerate(job.left):
            judged = self._judge(job, pod)
            if isinstance(judged, Refusal):
                self._refused[pod.index] = judged
                continue
            undecided.append(pod)
            self._refused.pop(pod.index, None)
            if room.low[self._landings_of[pod.index].nodes].all():
                job.left = undecided + job.left[at + 1 :]
                return judged
            warmer = warmer or judged
        job.left = undecided
        return warmer

    def _judge(self, job: _Job, pod: Pod) -> Move | Refusal:
        """The move of one candidate, or why it may not be made now."""
        if (refusal := self._budgets.refuses(pod)) is not None:
            return refusal
        move = self._move(job, pod)
        if (refusal := self.door.refuses(move)) is not None:
            return refusal
        landing = self._lands(pod)
        if isinstance(landing, Refusal):
            return landing
        self._landings_of[pod.index] = landing
        likeliest = int(landing.nodes[0])
        landed = replace(
            move,
            landings=landing.shown(),
            landing_name=self._snapshot.nodes.names[likeliest],
            landing_pool=self._pools[likeliest],
            pull_bytes=self._landing.pull_bytes(pod, landing.nodes),
        )
        # once more, now that it is known where it goes: too much may be on its way there
        return self.door.refuses(landed) or landed

    def _lands(self, pod: Pod) -> Distribution | Refusal:
        """Where the replacement lands, when all those nodes can take it; a rehearsal steers away from those that
        can't."""
        taken: list[int] = []
        for _ in range(STEERINGS_AT_MOST):
            likely = self._landing.likely(pod)
            if isinstance(likely, Refusal):
                refusal = likely
                break
            unfit = self._unfit(pod, likely)
            if unfit is None:
                return self._landing.pending_takes(pod) or self._landing.landings(pod)
            nodes, refusal = unfit
            if self._steering is None or not nodes or (more := self._steering.take(nodes)) is None:
                break
            taken += more
            self._landing.steer(more)
        if self._steering is not None and taken:  # it was for nothing: others may need it
            self._steering.give_back(taken)
            self._landing.steer(taken, away=False)
        return refusal

    def _unfit(self, pod: Pod, landing: Likely) -> tuple[list[int], Refusal] | None:
        """The likely landings that can't take the replacement and might be steered away from, and why it must not
        go."""
        nodes, names = landing.nodes, self._snapshot.nodes.names
        # one strategy's move must not break another's target
        load, kind = [room.loads.pod[pod.index] for room in self._rooms], self._kind(pod)
        takes = _all_of(room.takes(each, nodes, kind=kind) for room, each in zip(self._rooms, load, strict=True))
        takes &= nodes != pod.node
        if takes.all():
            return None
        unfit = nodes[~takes]
        if not takes.any() and (refusal := self._nowhere(pod, load)) is not None:
            return [], refusal
        first = int(unfit[0])
        chance = f"with a probability of {float(landing.shares[nodes == first][0]):.0%}"
        if self._landing.closed[unfit].any():
            first = int(unfit[self._landing.closed[unfit]][0])
            return [], Refusal.of(Reason.LANDING_CLOSED, names[first])
        if pod.node in unfit:
            share = float(landing.shares[nodes == pod.node][0])
            return unfit.tolist(), Refusal.of(Reason.WOULD_COME_BACK, f"with a probability of {share:.0%}")
        return unfit.tolist(), Refusal.of(Reason.LANDING_TOO_WARM, f"{names[first]}, {chance}")

    def _nowhere(self, pod: Pod, load: list[Floats]) -> Refusal | None:
        """Why no node at all can take the replacement, or None."""
        feasible = self._landing.feasible(pod)
        if isinstance(feasible, Refusal):
            return feasible
        kind = self._kind(pod)
        everywhere = _all_of(room.takes(each, kind=kind) for room, each in zip(self._rooms, load, strict=True))
        everywhere &= feasible
        everywhere[pod.node] = False
        if everywhere.any():
            return None
        elsewhere = int(np.count_nonzero(feasible)) - int(feasible[pod.node])
        if not elsewhere:
            return Refusal.of(Reason.NO_LANDING)
        return Refusal.of(Reason.NO_ROOM_IN_TARGETS, f"{elsewhere} nodes fit by requests")

    def _kind(self, pod: Pod) -> tuple[int, int, int]:
        """The same for pods that are alike to the scheduler."""
        pods = self._snapshot.pods
        return int(pods.owner[pod.index]), int(pods.shape[pod.index]), int(pods.namespace[pod.index])

    def _move(self, job: _Job, pod: Pod) -> Move:
        """The move of a candidate, its landing not looked for yet."""
        finding, snapshot = job.finding, self._snapshot
        owner = int(snapshot.pods.owner[pod.index])
        service = snapshot.service_of(owner)
        assert service is not None  # a bare pod never passes the guards
        traits = self.door.traits(pod)
        load, room = job.room.loads.relieved[pod.index], job.room.loads.room[finding.node]
        parts = [
            f"{name} {each / whole:.1%}"
            for name, each, whole in zip(job.room.loads.resources, load, room, strict=True)
            if math.isfinite(each)
        ]
        return Move(
            pod=pod.index,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=finding.node,
            node_name=snapshot.nodes.names[finding.node],
            pool=finding.pool,
            service=service,
            strategy=finding.strategy,
            cpu_millicores=float(self._cpu[pod.index]),
            landings=(),
            identity=traits.identity,
            level=traits.level,
            reason=f"{finding.reason}; relieves it of {', '.join(parts)}",
            owner_uid=snapshot.owners[int(snapshot.top_owner[owner])].uid,
        )


def _all_of(masks: Iterable[Bools]) -> Bools:
    out: Bools = np.logical_and.reduce(list(masks))
    return out
