"""The planner: one move at a time, so that a move that is refused later is followed by the next best.

    while move := planner.next_move():
        ... admit, evict ...
        planner.accept(move)   or   planner.reject(move, refusal)

Findings are processed in their order, the most urgent first. For each the best candidate is chosen that is admissible
(guards, budgets, limits) and whose landing holds (`landings`): every node where kube-scheduler may put the replacement
stays at or under its target, with all earlier moves of the plan counted. A finding ends when its goal is reached: the
node is at its target (COOL), enough pods are gone (REMOVE), or none is left (EMPTY, `emptying`). The plan is
deterministic and independent of the order in which nodes and pods are listed.

With a `SoftTaintBudget` the plan is a simulation: nodes that bar a landing get our soft taint, as far as the budget
goes, and nodes to be emptied are cordoned.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.budgets import BudgetRoom
from rebalancer.model.eviction import Eviction
from rebalancer.model.plan import Finding, Goal, Loads, PodRefusal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import FAILED, SUCCEEDED, ClusterSnapshot, Pod
from rebalancer.placement.landing import Distribution, PlacementModel
from rebalancer.planner.emptying import NodeDrainer
from rebalancer.planner.jobs import Job, counted, goal_reached, in_order, useless
from rebalancer.planner.landings import Landings
from rebalancer.planner.soft_taints import SoftTaintBudget
from rebalancer.strategies.view import Findings

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def _never() -> bool:
    return False


def _no_share(parts: int) -> Callable[[], bool]:
    return _never


class Planner:
    """See the module. Not thread-safe; one for each plan."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        placement: PlacementModel,
        found: Sequence[Findings],
        admission: EvictionAdmission,
        cpu_millicores: Floats,
        pools: Sequence[str],
        base: Loads | None = None,
        steering: SoftTaintBudget | None = None,
        out_of_time: Callable[[], bool] = _never,
        share_of_time: Callable[[int], Callable[[], bool]] = _no_share,
    ) -> None:
        """`placement` is the scheduler's view of the snapshot with no move counted yet, and this planner's until its
        `start_over`. `cpu_millicores` (pods,) is the real CPU that moves are recorded with; NaN where
        unknown. `pools` (nodes,) names of the nodes' pools, empty for none. `base` is the load that every target node
        is judged by, whichever strategy wants the move. `steering` makes the plan a simulation. Once `out_of_time`
        returns True, nothing more is planned. `share_of_time` makes a limit of one of so many equal parts of the time
        that is left: when it is spent, the other strategies come first."""
        self._snapshot = snapshot
        self.admission = admission
        self._cpu = cpu_millicores
        self._pools = pools
        self._out_of_time, self._share_of_time = out_of_time, share_of_time
        self.placement = placement
        self._landings = Landings(snapshot=snapshot, model=placement, found=found, base=base, steering=steering)
        self._budgets = BudgetRoom(snapshot)
        self._moved: Bools = np.zeros(len(snapshot.pods), dtype=np.bool_)
        self._drainer = NodeDrainer(
            snapshot=snapshot,
            moved=self._moved,
            admission=admission,
            budgets=self._budgets,
            landings=self._landings,
            simulation=steering is not None,
            out_of_time=out_of_time,
        )
        self._refused: dict[int, Refusal] = {}
        self._landings_of: dict[int, Distribution] = {}
        self._stopped: Refusal | None = None
        self._jobs = self._each_finding(found)
        self._job: Job | None = next(self._jobs, None)

    # ---- the loop

    def next_move(self) -> Eviction | None:
        """The best move left, or None at the end of the plan. It is counted only when accepted."""
        while self._job is not None:
            if self._out_of_time():
                self.stop(Refusal.of(Reason.PLANNING_TIMEOUT))
                return None
            if (move := self._best(self._job)) is not None:
                return move
            self._drainer.end(self._job)
            self._job = next(self._jobs, None)
        return None

    def accept(self, move: Eviction) -> None:
        """Count a move that happened, may have happened, or would happen in a real run."""
        pod = self._snapshot.pod(move.pod_index)
        self._moved[move.pod_index] = True
        self._budgets.take(pod)
        if move.target_nodes:  # a finished pod holds nothing and has no replacement
            self._landings.count(pod, self._landings_of[move.pod_index])
        if self._job is not None:
            self._job.taken += bool((counted(self._job.finding) == move.pod_index).any())
            self._job.to_go.pop(move.pod_index, None)
        self._drop(move.pod_index)

    def reject(self, move: Eviction, refusal: Refusal) -> None:
        """Record why a move was refused after all; the next best follows."""
        self._refused[move.pod_index] = refusal
        if refusal.code in (Reason.SERVER_BUDGET, Reason.SERVER_SEVERAL_BUDGETS):
            self._budgets.close(self._snapshot.pod(move.pod_index))
        self._drop(move.pod_index)

    def stop(self, refusal: Refusal) -> None:
        """End the plan: every candidate that is still undecided is refused with this reason."""
        self._stopped = refusal
        if self._job is not None:
            self._refused.update((pod.index, refusal) for pod in self._job.left)
            self._job = next(self._jobs, None)
        assert self._job is None

    def _drop(self, pod: int) -> None:
        if self._job is not None:
            self._job.left = [each for each in self._job.left if each.index != pod]

    # ---- the result

    def refusals(self) -> list[PodRefusal]:
        """Every candidate that was not chosen, with its reason, by node and name."""
        out = []
        pods, snapshot = self._snapshot.pods, self._snapshot
        for index, refusal in self._refused.items():
            if self._moved[index]:
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
        """(nodes, resources) loads of the given strategy, with each replacement spread by its probabilities."""
        headroom = self._landings.headrooms[strategy]
        if headroom is None:
            raise ValueError("this strategy balances nothing")
        return headroom.expected

    @property
    def cordoned(self) -> Bools:
        """(nodes,) that are being emptied and must be cordoned; complete at the end of the plan."""
        return self._drainer.worked_on

    # ---- one finding

    def _each_finding(self, found: Sequence[Findings]) -> Iterator[Job]:
        late: list[tuple[int, Finding]] = []
        for at, findings in enumerate(found):
            turn_is_over = self._share_of_time(sum(bool(each.findings) for each in found[at:]) or 1)
            for finding in sorted(findings.findings, key=self._order):
                # thousands of refused candidates of one strategy must not starve the others
                if self._stopped is None and turn_is_over():
                    late.append((at, finding))
                else:
                    yield from self._work_on(finding, at, findings.empty_at_most)
        for at, finding in late:
            yield from self._work_on(finding, at, found[at].empty_at_most)

    def _work_on(self, finding: Finding, at: int, at_most: int | None) -> Iterator[Job]:
        """`at`: index of its findings; `at_most`: how many of these are emptied at a time. Guards are evaluated for
        processed findings only: for 150,000 candidates they alone would exceed the planning time."""
        empties = finding.goal is Goal.EMPTY
        if (refusal := self._stopped) is not None:
            if empties:
                self._drainer.leave(finding.node)
        elif empties:
            refusal = self._drainer.waits(finding.node, among=at, at_most=at_most)
        if refusal is not None:
            for index in finding.candidates.tolist():
                self._refused.setdefault(index, refusal)
            return
        taken = int(np.count_nonzero(self._moved[counted(finding)]))
        job = Job(finding=finding, headroom=self._landings.headrooms[at], taken=taken)
        self._sort_out(job)
        if empties:
            self._empty(job, among=at)
        yield job

    def _order(self, finding: Finding) -> bool:
        """Sort key: the given order, but a node that is being drained before one whose draining hasn't begun."""
        return not (finding.goal is Goal.EMPTY and self._drainer.comes_first(finding.node))

    def _sort_out(self, job: Job) -> None:
        """Keep the candidates that no guard protects and whose move would help."""
        finding, in_vain = job.finding, useless(job)
        for index in finding.candidates.tolist():
            if self._moved[index]:
                continue
            pod = self._snapshot.pod(index)
            refusal = self.admission.stays(pod, pool=finding.pool, broken=finding.broken) or in_vain.get(index)
            if refusal is None:
                job.left.append(pod)
            else:
                self._refused[index] = refusal

    def _empty(self, job: Job, *, among: int) -> None:
        """Empty the node as a whole, or not at all."""
        refusal = self._drainer.begin(
            job, among=among, may_go_now=lambda pod: self._admission_refusal(pod, self._move(job, pod))
        )
        if refusal is not None:
            if refusal.code is Reason.PLANNING_TIMEOUT:
                self._drainer.leave(job.finding.node)
            self._refused.update((pod.index, refusal) for pod in job.left)
            job.left = []

    def _best(self, job: Job) -> Eviction | None:
        """The best admissible move of a finding. Unless the strategy fixes the order, a target node under `low` is
        preferred to a warmer one."""
        finding, headroom = job.finding, job.cooled
        if (refusal := goal_reached(job)) is not None:
            for pod in job.left:
                self._refused.setdefault(pod.index, refusal)
            return None
        job.left = in_order(job, self.admission)
        warmer: Eviction | None = None
        undecided: list[Pod] = []
        for at, pod in enumerate(job.left):
            judged = self._judge(job, pod)
            if isinstance(judged, Refusal):
                self._refused[pod.index] = judged
                continue
            undecided.append(pod)
            self._refused.pop(pod.index, None)
            if headroom is None or finding.in_order or headroom.low[self._landings_of[pod.index].nodes].all():
                job.left = undecided + job.left[at + 1 :]
                return judged
            warmer = warmer or judged
        job.left = undecided
        return warmer

    def _judge(self, job: Job, pod: Pod) -> Eviction | Refusal:
        """The move of one candidate, or why it is refused now."""
        finding, even = job.finding, job.finding.landing.even
        if even is not None:
            enough = self._landings.even.enough(even, finding.node, self._landings.kind(pod))
            if enough is not None:
                return enough
        move = self._move(job, pod)
        if (refusal := self._admission_refusal(pod, move)) is not None:
            return refusal
        if pod.phase in (SUCCEEDED, FAILED):
            return move
        landing = self._landings.of(pod, finding, job.headroom)
        if isinstance(landing, Refusal):
            return landing
        self._landings_of[pod.index] = landing
        move.target_nodes = landing.shown(self._snapshot.nodes.names)
        move.target_pool = self._pools[int(landing.nodes[0])]
        move.pull_bytes = self._landings.model.pull_bytes(pod, landing.nodes)
        self.admission.scope(move)
        # again, with the target node known: limits of replacements may refuse it
        return self.admission.refuses(move) or move

    def _admission_refusal(self, pod: Pod, move: Eviction) -> Refusal | None:
        """Why the pod may not leave now, whatever its target node."""
        return self._budgets.refuses(pod) or self.admission.refuses(move)

    def _move(self, job: Job, pod: Pod) -> Eviction:
        """The move of a candidate, without its target nodes."""
        finding, snapshot = job.finding, self._snapshot
        owner = int(snapshot.pods.owner[pod.index])
        service = snapshot.service_of(owner)
        assert service is not None  # the guards reject bare pods
        traits = self.admission.traits(pod)
        return self.admission.scope(
            Eviction(
                namespace=pod.namespace,
                pod=pod.name,
                uid=pod.uid,
                node=snapshot.nodes.names[finding.node],
                pool=finding.pool,
                service=service,
                strategy=finding.strategy,
                reason=_reason(job, pod),
                cpu_millicores=float(self._cpu[pod.index]),
                service_identity=traits.identity,
                level=traits.level,
                owner_uid=snapshot.owners[int(snapshot.top_owner[owner])].uid,
                once=finding.goal is Goal.REMOVE and not finding.recurs,
                pod_index=pod.index,
                node_index=finding.node,
            )
        )


def _reason(job: Job, pod: Pod) -> str:
    """The finding's reason, with the relief where the goal is to cool."""
    finding, headroom = job.finding, job.cooled
    if headroom is None:
        return finding.reason
    parts = [
        f"{name} {each / whole:.1%}"
        for name, each, whole in zip(
            headroom.loads.resources, headroom.loads.relieved[pod.index], headroom.loads.room[finding.node], strict=True
        )
        if math.isfinite(each)
    ]
    return f"{finding.reason}; relieves it of {', '.join(parts)}"
