"""Whether a replacement may land where kube-scheduler would put it.

Every node that makes up the likely 99 % must be open, stay at or under its target with the pod and all earlier moves of
the plan counted in, and repair what was found. The strategy whose finding it is judges strictly: a node without its
marks is no landing. What the others balance, and the pools' CPU targets, hold where they have marks.

In a rehearsal nodes that stand in the way get our soft taint, as far as the budget goes.
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
"""For one pod: when so many rounds of taints don't free its landing, more won't."""


class Landings:
    """See the module. Counts this plan's moves everywhere at once."""

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
        """Of each strategy's findings; None where it balances nothing."""
        self._all = [headroom for headroom in self.headrooms if headroom is not None]
        if base is not None:
            self._all.append(TargetHeadroom(base, model.closed))
        self.even = EvenGroups(found)
        self.receives: Bools = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        """(nodes,) where replacements of this plan may land."""
        self._snapshot = snapshot
        self._steering = steering

    # ---- questions

    def of(self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None) -> Distribution | Refusal:
        """Where the replacement lands, when all those nodes may take it; `headroom` is the finding's own."""
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
        self._remove_soft_taints(taken)  # it was for nothing: others may need it
        return refusal

    def _unfit(
        self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, landing: LikelyTargets
    ) -> tuple[list[int], Refusal] | None:
        """The likely landings that may not take the replacement and might be steered away from, and why it must not
        go."""
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
            return unfit.tolist(), Refusal.of(Reason.WOULD_RETURN_TO_NODE, f"with {_chance(landing, pod.node)}")
        no_better = unfit[:0] if repairs is None else unfit[~repairs[unfit]]
        if len(no_better):
            first, code = int(no_better[0]), Reason.TARGET_NODE_NOT_BETTER
        else:
            first, code = int(unfit[0]), Reason.TARGET_NODE_WITHOUT_HEADROOM
        return unfit.tolist(), Refusal.of(code, f"{names[first]}, with {_chance(landing, first)}")

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
        """(nodes,) nodes, or those asked for, that are open and stay at or under every target."""
        asked = np.arange(len(self.model.closed)) if nodes is None else nodes
        opened, there = ~self.model.closed[asked], asked == pod.node
        kind, takes = self.kind(pod), opened.copy()
        for each in self._all:
            if each is not headroom and not each.balances:
                continue
            takes &= each.takes(each.coming[pod.index], nodes, kind=kind, strict=each is headroom)
        # where it is already it makes nothing warmer
        out: Bools = takes & ~there if finding.landing.elsewhere else takes | (there & opened)
        return out

    def _repairs(self, pod: Pod, finding: Finding) -> Bools | None:
        """(nodes,) where the pod would repair what was found; None = anywhere."""
        rule = finding.landing
        if rule.even is None:
            return rule.only
        better = self.even.better(rule.even, pod.node, self.kind(pod))
        return better if rule.only is None else better & rule.only

    def kind(self, pod: Pod) -> tuple[int, int, int]:
        """The same for pods that are alike to the scheduler."""
        pods = self._snapshot.pods
        return int(pods.owner[pod.index]), int(pods.template[pod.index]), int(pods.namespace[pod.index])

    # ---- this plan's moves

    def count(self, pod: Pod, landing: Distribution) -> None:
        """Count one eviction and its replacement: later landings see both."""
        self.model.commit(pod, landing)
        self.receives[landing.nodes] = True
        kind = self.kind(pod)
        for headroom in self._all:
            relief = np.nan_to_num(headroom.loads.relieved[pod.index])
            headroom.shift(np.nan_to_num(headroom.coming[pod.index]), pod.node, landing, kind=kind, relief=relief)
        self.even.count(pod.index, pod.node, kind, landing)

    def cordon(self, node: int) -> None:
        """From now on nothing may land there, and the scheduler sees it as cordoned."""
        self.model.cordon(node)

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """For a moment, and without what is counted inside; what was steered away from stays so."""
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
    def steered(self) -> frozenset[int]:
        """Nodes that a rehearsal steers away from so far."""
        return frozenset(() if self._steering is None else self._steering.chosen)

    def limit_soft_taints_to(self, nodes: frozenset[int]) -> None:
        """Don't steer away from others after all."""
        self._remove_soft_taints(sorted(self.steered - nodes))

    def _remove_soft_taints(self, nodes: list[int]) -> None:
        if self._steering is not None and nodes:
            self._steering.give_back(nodes)
            self.model.steer(nodes, away=False)


def _chance(landing: LikelyTargets, node: int) -> str:
    return f"a probability of {float(landing.shares[landing.nodes == node][0]):.0%}"


def _coming(loads: Loads, base: Loads | None) -> Floats:
    """(pods, resources) what a landing grows by; where the strategy doesn't know, what the base says."""
    if base is None:
        return loads.pod
    coming = loads.pod.copy()
    for at, resource in enumerate(loads.resources):
        if resource in base.resources:
            other = base.pod[:, base.resources.index(resource)]
            coming[:, at] = np.where(np.isfinite(coming[:, at]), coming[:, at], other)
    return coming
