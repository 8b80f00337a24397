"""Whether a replacement may land where kube-scheduler would put it.

Every node of the likely 99 % must be open, stay at or under its target with the pod and all earlier moves of the plan
counted, and repair the finding. The finding's own strategy is strict: a node without thresholds of it is no target. The
thresholds of the other strategies and the pools' CPU targets hold for the nodes that have them.

In a simulation, nodes that bar the landing get our soft taint, as far as the budget goes.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.plan import Finding, Loads
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.landing import Distribution, LikelyTargets, PlacementModel
from rebalancer.planner.evenness import EvenGroups
from rebalancer.planner.soft_taints import SoftTaintBudget
from rebalancer.planner.targets import TargetHeadroom
from rebalancer.strategies.view import Findings

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MAX_SOFT_TAINTS_PER_POD = 8
"""Rounds of taints for one pod."""


class Landings:
    """See the module. Counts this plan's moves in the placement model, the headroom and the even groups."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        model: PlacementModel,
        found: Sequence[Findings],
        base: Loads | None,
        steering: SoftTaintBudget | None,
    ) -> None:
        self.model = model
        self.headrooms = [
            None if each.loads is None else TargetHeadroom(each.loads, model.closed, coming=_coming(each.loads, base))
            for each in found
        ]
        """For each strategy's findings; None where it balances nothing."""
        self._all = [headroom for headroom in self.headrooms if headroom is not None]
        if base is not None:
            self._all.append(TargetHeadroom(base, model.closed))
        self.even = EvenGroups(found)
        self.receives: Bools = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        """(nodes,) possible targets of this plan's replacements."""
        self._snapshot = snapshot
        self._steering = steering

    # ---- questions

    def of(self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None) -> Distribution | Refusal:
        """Where the replacement lands, if all those nodes may take it; `headroom` is that of the finding's strategy."""
        taken: list[int] = []
        for _ in range(MAX_SOFT_TAINTS_PER_POD):
            likely = self.model.likely(pod)
            if isinstance(likely, Refusal):
                refusal = likely
                break
            unfit = self._unfit(pod, finding, headroom, likely)
            if unfit is None:
                taken_by = None if finding.makes_room else self.model.pending_takes(pod)
                return taken_by or self.model.landings(pod)
            nodes, refusal = unfit
            if self._steering is None or not nodes or (more := self._steering.take(nodes)) is None:
                break
            taken += more
            self.model.steer(more)
        self._remove_soft_taints(taken)  # they didn't help: other pods may need them
        return refusal

    def _unfit(
        self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, landing: LikelyTargets
    ) -> tuple[list[int], Refusal] | None:
        """The likely targets that may not take the replacement and could be tainted, and why the pod is refused."""
        nodes, names, closed = landing.nodes, self._snapshot.nodes.names, self.model.closed
        repairs = self._repairs(pod, finding)
        fits = self._fits(pod, finding, headroom, nodes)
        takes = fits if repairs is None else fits & repairs[nodes]
        if takes.all():
            return None
        unfit = nodes[~takes]
        if not takes.any() and (refusal := self._nowhere(pod, finding, headroom, repairs)) is not None:
            return [], refusal
        if closed[unfit].any():
            return [], Refusal.of(Reason.TARGET_NODE_UNAVAILABLE, names[int(unfit[closed[unfit]][0])])
        back = unfit == pod.node
        if finding.landing.elsewhere and back.any():
            return unfit.tolist(), Refusal.of(Reason.WOULD_RETURN_TO_NODE, f"with {_probability(landing, pod.node)}")
        no_better = unfit[:0] if repairs is None else unfit[~repairs[unfit]]
        if len(no_better):
            first, code = int(no_better[0]), Reason.TARGET_NODE_NOT_BETTER
        else:
            first, code = int(unfit[0]), Reason.TARGET_NODE_WITHOUT_HEADROOM
        return unfit.tolist(), Refusal.of(code, f"{names[first]}, with {_probability(landing, first)}")

    def _nowhere(
        self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, repairs: Bools | None
    ) -> Refusal | None:
        """Why no node at all may take the replacement, or None."""
        feasible = self.model.feasible(pod)
        if isinstance(feasible, Refusal):
            return feasible
        candidates = feasible.copy()
        if finding.landing.elsewhere:
            candidates[pod.node] = False
        count = int(np.count_nonzero(candidates))
        if not count:
            return Refusal.of(Reason.NO_TARGET_NODE)
        if repairs is not None and not (candidates & repairs).any():
            return Refusal.of(Reason.NO_BETTER_NODE, f"{count} nodes fit by requests")
        everywhere = candidates & self._fits(pod, finding, headroom)
        if repairs is not None:
            everywhere &= repairs
        return None if everywhere.any() else Refusal.of(Reason.NO_NODE_WITH_HEADROOM, f"{count} nodes fit by requests")

    def _fits(self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, nodes: Rows | None = None) -> Bools:
        """(nodes,) of all nodes, or of `nodes`: open, and at or under every target with the pod."""
        asked = np.arange(len(self.model.closed)) if nodes is None else nodes
        opened, there = ~self.model.closed[asked], asked == pod.node
        kind, takes = self.kind(pod), opened.copy()
        for each in self._all:
            if each is not headroom and not each.balances:
                continue
            takes &= each.takes(each.coming[pod.index], nodes, kind=kind, strict=each is headroom)
        # on its own node the pod adds no load
        out: Bools = takes & ~there if finding.landing.elsewhere else takes | (there & opened)
        return out

    def _repairs(self, pod: Pod, finding: Finding) -> Bools | None:
        """(nodes,) where the pod would repair the finding; None = anywhere."""
        rule = finding.landing
        if rule.even is None:
            return rule.only
        better = self.even.better(rule.even, pod.node, self.kind(pod))
        return better if rule.only is None else better & rule.only

    def kind(self, pod: Pod) -> tuple[int, int, int]:
        """Equal for pods that the scheduler can't tell apart."""
        pods = self._snapshot.pods
        return int(pods.owner[pod.index]), int(pods.template[pod.index]), int(pods.namespace[pod.index])

    # ---- this plan's moves

    def count(self, pod: Pod, landing: Distribution) -> None:
        """Count an eviction and its replacement."""
        self.model.commit(pod, landing)
        self.receives[landing.nodes] = True
        kind = self.kind(pod)
        for headroom in self._all:
            relief = np.nan_to_num(headroom.loads.relieved[pod.index])
            headroom.shift(np.nan_to_num(headroom.coming[pod.index]), pod.node, landing, kind=kind, relief=relief)
        self.even.count(pod.index, pod.node, kind, landing)

    def cordon(self, node: int) -> None:
        """Close the node and see it as cordoned from now on."""
        self.model.cordon(node)

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """See the node as cordoned inside, and undo at the end what is counted there. Soft taints stay."""
        with ExitStack() as stack:
            stack.enter_context(self.model.as_if_cordoned(node))
            stack.enter_context(self.even.tentatively())
            for headroom in self._all:
                stack.enter_context(headroom.tentatively())
            before = self.receives.copy()
            try:
                yield
            finally:
                self.receives = before

    @property
    def soft_tainted(self) -> frozenset[int]:
        """Nodes with a soft taint of this simulation."""
        return frozenset(() if self._steering is None else self._steering.chosen)

    def limit_soft_taints_to(self, nodes: frozenset[int]) -> None:
        """Remove this simulation's soft taints from all other nodes."""
        self._remove_soft_taints(sorted(self.soft_tainted - nodes))

    def _remove_soft_taints(self, nodes: list[int]) -> None:
        if self._steering is not None and nodes:
            self._steering.give_back(nodes)
            self.model.steer(nodes, away=False)


def _probability(landing: LikelyTargets, node: int) -> str:
    return f"a probability of {float(landing.shares[landing.nodes == node][0]):.0%}"


def _coming(loads: Loads, base: Loads | None) -> Floats:
    """(pods, resources) added load of a landing; the base's where the strategy has none."""
    if base is None:
        return loads.pod
    coming = loads.pod.copy()
    for at, resource in enumerate(loads.resources):
        if resource in base.resources:
            other = base.pod[:, base.resources.index(resource)]
            coming[:, at] = np.where(np.isfinite(coming[:, at]), coming[:, at], other)
    return coming
