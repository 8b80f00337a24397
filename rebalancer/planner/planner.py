"""The planner: one move at a time, so that what is refused later makes it go on with the next best.

    while move := planner.next_move():
        ... admit, evict ...
        planner.accept(move)   or   planner.reject(move, refusal)

It works through the findings hottest first. For each it takes the best candidate that may go (guards, budgets,
admission's headroom) and whose landing is known to hold: every node where kube-scheduler may put the replacement must
stay at or under its target, with all earlier moves of this plan counted in. It stops at the target. The same input
gives the same plan, in whatever order nodes and pods are listed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.budgets import BudgetRoom
from rebalancer.constraints.door import Door
from rebalancer.model.plan import Finding, Landing, Move, PodRefusal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.landing import LandingModel
from rebalancer.planner.order import order_key, reliefs
from rebalancer.planner.targets import TargetRoom
from rebalancer.strategies.view import Findings

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MIN_RELIEF = 0.02
"""A move that takes away less than this share of the excess is harm for nothing."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One finding being worked on."""

    finding: Finding
    room: TargetRoom
    left: list[Pod]
    """Candidates that are not decided yet."""


class Planner:
    """See the module. Not thread-safe; used for one cycle."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        found: Sequence[Findings],
        door: Door,
        cpu_millicores: Floats,
    ) -> None:
        """`cpu_millicores` (pods,) is the real CPU that moves are recorded with; NaN where unknown."""
        self._snapshot = snapshot
        self.door = door
        self._cpu = cpu_millicores
        self._landing = LandingModel(snapshot)
        self._budgets = BudgetRoom(snapshot)
        self._rooms = [TargetRoom(each.loads, self._landing.leaving) for each in found]
        self._refused: dict[int, Refusal] = {}
        self._moved: set[int] = set()
        self._ties: dict[int, Rows] = {}
        self._jobs = self._each_job(found)
        self._job: _Job | None = next(self._jobs, None)

    # ---- the loop

    def next_move(self) -> Move | None:
        """The best move left, or None when nothing is left to do. It is counted only when accepted."""
        while self._job is not None:
            if (move := self._best(self._job)) is not None:
                return move
            self._job = next(self._jobs, None)
        return None

    def accept(self, move: Move) -> None:
        """Count a move that happened, may have happened, or would in a real run."""
        pod = self._snapshot.pod(move.pod)
        landing = move.landings[0].node
        self._moved.add(move.pod)
        self._landing.commit(pod, landing)
        self._budgets.take(pod)
        for room in self._rooms:
            room.shift(np.nan_to_num(room.loads.pod[move.pod]), move.node, landing)
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
                )
            )
        return sorted(out, key=lambda each: (each.node, each.namespace, each.name))

    def planned_load(self, strategy: int = 0) -> Floats:
        """(nodes, resources) loads of the given strategy's findings with the accepted moves counted in."""
        return self._rooms[strategy].node

    # ---- one finding

    def _each_job(self, found: Sequence[Findings]) -> Iterator[_Job]:
        for findings, room in zip(found, self._rooms, strict=True):
            for finding in findings.findings:
                yield _Job(finding=finding, room=room, left=self._may_go(finding, room))

    def _may_go(self, finding: Finding, room: TargetRoom) -> list[Pod]:
        """The candidates that no guard protects and whose move would help."""
        left: list[Pod] = []
        relief, _ = reliefs(room.loads.pod[finding.candidates], room.excess(finding.node))
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
        relief, overshoot = reliefs(room.loads.pod[[pod.index for pod in job.left]], room.excess(node))
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
            if room.low[self._ties[pod.index]].all():
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
        landings = self._landings(job, pod)
        if isinstance(landings, Refusal):
            return landings
        landed = replace(move, landings=landings, landing_name=self._snapshot.nodes.names[landings[0].node])
        # once more, now that it is known where it goes: too much may be on its way there
        return self.door.refuses(landed) or landed

    def _landings(self, job: _Job, pod: Pod) -> tuple[Landing, ...] | Refusal:
        """Where the replacement may land, when all of those nodes can take it."""
        feasible = self._landing.feasible(pod)
        if isinstance(feasible, Refusal):
            return feasible
        names = self._snapshot.nodes.names
        elsewhere = feasible.copy()
        elsewhere[pod.node] = False
        if not elsewhere.any():
            return Refusal.of(Reason.NO_LANDING)
        # one strategy's move must not break another's target
        takes = np.logical_and.reduce([room.takes(room.loads.pod[pod.index]) for room in self._rooms])
        if not (takes & elsewhere).any():
            return Refusal.of(Reason.NO_ROOM_IN_TARGETS, f"{np.count_nonzero(elsewhere)} nodes fit by requests")
        ties = self._landing.best(pod)
        if pod.node in ties:
            return Refusal.of(Reason.WOULD_COME_BACK, f"with a probability of {1 / len(ties):.0%}")
        if len(warm := ties[~takes[ties]]):
            return Refusal.of(Reason.LANDING_TOO_WARM, f"{names[warm[0]]}, with a probability of {1 / len(ties):.0%}")
        self._ties[pod.index] = ties
        return self._landing.landings(pod)

    def _move(self, job: _Job, pod: Pod) -> Move:
        """The move of a candidate, its landing not looked for yet."""
        finding, snapshot = job.finding, self._snapshot
        service = snapshot.service_of(int(snapshot.pods.owner[pod.index]))
        assert service is not None  # a bare pod never passes the guards
        traits = self.door.traits(pod)
        load, room = job.room.loads.pod[pod.index], job.room.loads.room[finding.node]
        parts = [
            f"{name} {each / whole:.1%}" for name, each, whole in zip(job.room.loads.resources, load, room, strict=True)
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
        )
