"""The result of a plan: what stays and why, and the loads that it leaves."""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Goal, PlanScore, PodRefusal
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.draws.draws import Draws
from rebalancer.planner.candidates.worth import gain
from rebalancer.planner.plan.state import PlanState

LANDING_REFUSALS = (
    Reason.TARGET_NODE_WITHOUT_HEADROOM,
    Reason.WOULD_RETURN_TO_NODE,
    Reason.TARGET_NODE_UNAVAILABLE,
    Reason.NO_NODE_WITH_HEADROOM,
    Reason.NO_NODE_WITH_MEMORY,
    Reason.TARGET_NODE_WITHOUT_MEMORY,
)
"""Refusals that depend on the moves before."""


class PlanOutcome:
    """See the module. Complete at the end of the plan; until then it says how far the plan is."""

    def __init__(self, state: PlanState) -> None:
        self._state, self._input = state, state.input

    def refusals(self) -> list[PodRefusal]:
        """Every candidate that was not chosen, with its reason, by node and name."""
        out = []
        snapshot, cpu = self._input.snapshot, self._input.cpu_millicores
        pods = snapshot.pods
        for index, refusal in self._state.refused.items():
            if self._state.moved[index]:
                continue
            out.append(
                PodRefusal(
                    node=snapshot.nodes.names[pods.node[index]] if pods.node[index] >= 0 else "",
                    namespace=snapshot.namespaces[pods.namespace[index]],
                    name=pods.names[index],
                    code=refusal.code,
                    message=refusal.message,
                    next_at=refusal.next_at,
                    cpu_millicores=float(cpu[index]) if np.isfinite(cpu[index]) else None,
                    setting=refusal.setting,
                    value=refusal.value,
                )
            )
        return sorted(out, key=lambda each: (each.node, each.namespace, each.name))

    def planned_load(self, strategy: int = 0) -> Floats:
        """(nodes, resources) mean loads of the given strategy over the draws."""
        headroom = self._state.landings.headrooms[strategy]
        if headroom is None:
            raise ValueError("this strategy balances nothing")
        return headroom.expected(self._draws)

    def planned_cpu(self, node: Floats, moves: Sequence[Eviction]) -> tuple[Floats, Floats]:
        """(nodes,) mean and 99th percentile, over the draws, of `node` (effective CPU) with these moves, each with what
        the planner counts it for."""
        draws = self._draws.count
        sure, drawn = node.copy(), np.zeros((draws, len(node)))
        speed = np.ones(len(node))
        if (base := self._input.base) is not None:  # its loads are in millicores of the reference machine
            capacity = self._input.snapshot.nodes.cpu_capacity_millicores
            speed = base.room[:, 0] / np.where(capacity > 0, capacity, np.nan)
        for move in moves:
            pod, source = move.in_plan.pod_index, move.in_plan.node_index
            leaving = coming = float(np.nan_to_num(move.cpu_millicores))
            if base is not None:
                leaving = float(np.nan_to_num(base.relieved[pod, 0])) / speed[source]
                coming = float(np.nan_to_num(base.pod[pod, 0]))
            sure[source] -= leaving
            placed = self._state.placed.get(pod)
            if placed is not None and placed.node >= 0:
                sure[placed.node] += coming / speed[placed.node]
            elif placed is not None:
                drawn[np.arange(draws), placed.winners] += coming / speed[placed.winners]
        high = np.percentile(drawn, 99.0, axis=0, method="higher")
        return sure + drawn.mean(axis=0), sure + high

    def planned_amount(self, node: Floats, leaving: Floats, coming: Floats, moves: Sequence[Eviction]) -> Floats:
        """(nodes,) mean, over the draws, of `node` (amounts of a resource) with these moves. `leaving` and `coming`
        (pods,): what a pod takes off its node, and what it adds to another."""
        out, draws = node.copy(), self._draws.count
        for move in moves:
            pod = move.in_plan.pod_index
            out[move.in_plan.node_index] -= float(np.nan_to_num(leaving[pod]))
            placed, more = self._state.placed.get(pod), float(np.nan_to_num(coming[pod]))
            if placed is not None and placed.node >= 0:
                out[placed.node] += more
            elif placed is not None:
                np.add.at(out, placed.winners, more / draws)
        return out

    @property
    def _draws(self) -> Draws:
        return self._state.landings.model.draws

    @property
    def refused(self) -> dict[int, Refusal]:
        """Pod -> why it was not chosen."""
        return {pod: each for pod, each in self._state.refused.items() if not self._state.moved[pod]}

    @property
    def contested(self) -> bool:
        """Whether a candidate was refused for its landing."""
        return any(each.code in LANDING_REFUSALS for each in self.refused.values())

    def still_hot(self) -> list[tuple[int, str]]:
        """(node, measured resource that it was to be relieved of) of each finding whose node stays over its `high`, in
        their order; the resource is empty for requests."""
        return [
            (finding.node, finding.resource if headroom.loads.measured else "")
            for at, findings in enumerate(self._input.found)
            for finding in findings.findings
            if (headroom := self._state.landings.headrooms[at]) is not None
            and finding.goal is Goal.COOL
            and headroom.over(finding.node)[0] > 0
        ]

    def score(self, moves: Sequence[Eviction]) -> PlanScore:
        """What these moves are worth."""
        minutes, admission = 0.0, self._state.admission
        for at, findings in enumerate(self._input.found):
            headroom = self._state.landings.headrooms[at]
            for finding in findings.findings:
                if finding.goal is Goal.COOL and headroom is not None:
                    load, room = headroom.loads.node[finding.node], headroom.loads.room[finding.node]
                    target, high = headroom.loads.target[finding.node], headroom.loads.high[finding.node]
                    minutes += gain(load / room, (headroom.excess(finding.node) + target) / room, high / room)
        prices = [admission.price(self._input.snapshot.pod(move.in_plan.pod_index)).total for move in moves]
        return PlanScore(hot_node_minutes=minutes, price=sum(prices))

    def unreached(self) -> tuple[int, float, float, int]:
        """Nodes to be cooled that stay over `high`; load over `high` and over `target` on all of them, in shares of a
        node; and the number of other findings that were not reached."""
        hot, over_high, over_target, left = 0, 0.0, 0.0, 0
        waiting = {finding.room_for for each in self._input.found for finding in each.findings}
        left += sum(pod in self._state.refused for pod in waiting if pod is not None)
        for at, findings in enumerate(self._input.found):
            headroom = self._state.landings.headrooms[at]
            for finding in findings.findings:
                if finding.goal is Goal.COOL and headroom is not None:
                    high, target = headroom.over(finding.node)
                    hot, over_high, over_target = hot + (high > 0), over_high + high, over_target + target
                elif finding.goal not in (Goal.COOL, Goal.ROOM):
                    open_ = finding.candidates[~self._state.moved[finding.candidates]]
                    left += min(len(open_), finding.wanted or len(open_))
        return hot, over_high, over_target, left
