"""Whether a replacement may land where kube-scheduler would put it.

A landing holds when, with all earlier moves of the plan counted, its node is open, stays at or under its target and
repairs the finding in 99 % of the draws. The finding's own strategy is strict: a node without thresholds of it is no
target. The thresholds of the other strategies and the pools' CPU targets hold for the nodes that have them. On any node
a share of the real memory must stay available.

In a simulation, nodes that bar the landing get our soft taint, as far as the budget goes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.plan import PREDICTED, Finding, Loads
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.notation.figures import percent, size
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Landing, Placed
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.landings.evenness import EvenGroups
from rebalancer.planner.landings.risk import UNTAINTED_RISK, AllowedRisk
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.landings.targets import TargetHeadroom, coming_loads
from rebalancer.strategies.interface.view import Findings

MAX_SOFT_TAINTS_PER_POD = 8
"""Rounds of taints for one pod."""

NO_TAINTS_NOW = "soft taints wait until the pods of leaving nodes have landed, as these may have no room elsewhere"

MAX_EXPLAINED = 16
"""Refusals of a plan for which the setting that would lift them is looked for."""

FEW_SOFT_TAINTS, FEW_SHARE = 8, 0.02
"""New soft taints that one eviction is worth, and as a share of all nodes: for more of them, two evictions of smaller
pods are better."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a candidate, before its landing is known."""

    pod: Pod
    finding: Finding
    headroom: TargetHeadroom | None
    """Of the finding's strategy."""


class Landings:
    """See the module. Counts this plan's moves in the placement model, the headroom and the even groups."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        model: PlacementModel,
        found: Sequence[Findings],
        base: Loads | None,
        reserve: Loads | None = None,
        steering: SoftTaintBudget | None,
    ) -> None:
        self.model = model
        self.headrooms = [
            None
            if each.loads is None
            else TargetHeadroom(each.loads, model.closed, coming=coming_loads(each.loads, base), due=model.due)
            for each in found
        ]
        """For each strategy's findings; None where it balances nothing."""
        self._all = [headroom for headroom in self.headrooms if headroom is not None]
        self._base = None if base is None else TargetHeadroom(base, model.closed, due=model.due)
        if self._base is not None:
            self._all.append(self._base)
        self._reserve = None if reserve is None else TargetHeadroom(reserve, model.closed, due=model.due)
        if self._reserve is not None:
            self._all.append(self._reserve)
        self.even = EvenGroups(found, model.draws.count)
        self._risk: Floats = np.zeros(len(snapshot.nodes))
        """(nodes,) probability that a landing of this plan takes the node over its target."""
        self.receives: Bools = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        """(nodes,) possible targets of this plan's replacements."""
        self._full: Bools = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        """(nodes,) that start as many replacements as they may: others take the next ones."""
        self._snapshot = snapshot
        self._steering = steering
        self._explained = 0
        self.needs_many_taints = False
        """Whether the last landing was refused for the number of soft taints that one eviction is worth."""
        self._allowed = AllowedRisk.of(simulated=steering is not None)
        self._rank: Rows = np.argsort(np.argsort(np.array(snapshot.nodes.names)))
        """(nodes,) by name, so that the order in which nodes are listed changes nothing."""

    def avoid(self, node: int) -> bool:
        """Let others take the next replacements; False where that isn't possible, or done already."""
        new = self._steering is not None and not self._full[node]
        self._full[node] |= new
        return new

    def avoid_none(self) -> None:
        """Replacements have become Ready."""
        self._full[:] = False

    # ---- questions

    def of(
        self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None, *, few_taints: bool = False
    ) -> "CheckedLanding | Refusal":
        """Where the replacement lands, if it may land there; `headroom` is that of the finding's strategy.
        `few_taints`: only FEW_SOFT_TAINTS new ones."""
        new = Replacement(pod, finding, headroom)
        most = max(FEW_SOFT_TAINTS, int(FEW_SHARE * len(self._rank))) if few_taints else len(self._rank)
        tainted: list[int] = []
        self.needs_many_taints = False
        for _ in range(MAX_SOFT_TAINTS_PER_POD):
            landing = self.model.landings(pod)
            if isinstance(landing, Refusal):
                refusal = landing
                break
            risk = self._risks(new, landing)
            nowhere = 1.0 - float(landing.shares.sum())
            if nowhere > self._allowed.landing:
                refusal = Refusal.of(Reason.NO_TARGET_NODE, f"with a probability of {nowhere:.0%}")
                break
            if self._holds(risk, nowhere):
                pending = None if finding.makes_room else self.model.pending_takes(pod)
                return pending or CheckedLanding(landing, risk)
            refusal, hopeless = self._refusal(new, landing, risk)
            if self._steering is None or hopeless:
                break
            barring = self._barring(risk)
            if not all(each.may_divert(list({*self.chosen, *barring})) for each in self._all):
                refusal = replace(refusal, message=f"{refusal.message}; {NO_TAINTS_NOW}")
                break
            if len(tainted) + len(barring) > most:
                self.needs_many_taints = True
                break
            more = self._steering.take(barring)
            if more is None:
                refusal = self._with_setting(refusal, new, barring)
                break
            tainted += more
            self.model.steer(more)
        self._remove_soft_taints(tainted)  # they didn't help: other pods may need them
        return refusal

    def _holds(self, risk: Floats, nowhere: float = 0.0) -> bool:
        """`risk` as in `CheckedLanding`; `nowhere`: the probability that the replacement fits nowhere."""
        node_risk = self._risk + risk
        return bool(risk.sum() + nowhere <= self._allowed.landing and node_risk.max(initial=0.0) <= self._allowed.node)

    def _with_setting(self, refusal: Refusal, new: Replacement, barring: list[int]) -> Refusal:
        """The refusal with the budget that would free the pod, found beyond the budget and undone. Only for the
        first MAX_EXPLAINED pods of a plan."""
        assert self._steering is not None
        if self._explained >= MAX_EXPLAINED:
            return refusal
        self._explained += 1
        extra: list[int] = []
        try:
            for _ in range(MAX_SOFT_TAINTS_PER_POD):
                more = [node for node in barring if node not in extra and node not in self._steering.chosen]
                if not more:
                    return refusal
                extra += more
                self.model.steer(more)
                landing = self.model.landings(new.pod)
                if isinstance(landing, Refusal):
                    return refusal
                risk = self._risks(new, landing)
                if self._holds(risk):
                    return self._steering.limits(refusal, extra)
                barring = self._barring(risk)
            return refusal
        finally:
            self.model.steer(extra, away=False)

    def _barring(self, risk: Floats) -> list[int]:
        """Nodes that bar a landing, the likeliest first. The least likely need no soft taint, unless earlier moves have
        used up what may go wrong there."""
        nodes = np.flatnonzero(risk > 0)
        order = nodes[np.lexsort((self._rank[nodes], np.round(risk[nodes], 12)))]
        untainted = np.cumsum(risk[order]) <= UNTAINTED_RISK * self._allowed.landing
        untainted &= self._risk[order] + risk[order] <= self._allowed.node
        return [int(node) for node in order[~untainted][::-1]]

    def _risks(
        self,
        new: Replacement,
        landing: Landing,
        *,
        by_reserve: bool = True,
    ) -> Floats:
        """(nodes,) the probability that the replacement lands there and must not; without `by_reserve`, whatever memory
        would stay available."""
        draws = self.model.draws
        nodes = draws.node[landing.slots]
        row_takes = self._fits(new, landing.rows, by_reserve=by_reserve)
        slots_take = self._slots_fit(new, nodes, landing.slots, by_reserve=by_reserve)
        if (repairs := self._repairs(new)) is not None:
            row_takes &= repairs[landing.rows]
            slots_take &= self._slots_repair(new, nodes, draws.draw[landing.slots])
        size = len(self._snapshot.nodes)
        out: Floats = np.bincount(
            landing.rows[~row_takes], weights=landing.row_shares[~row_takes], minlength=size
        ).astype(np.float64)
        out += np.bincount(nodes[~slots_take], weights=landing.slot_shares[~slots_take], minlength=size)
        return out

    def _refusal(self, new: Replacement, landing: Landing, risk: Floats) -> tuple[Refusal, bool]:
        """Why the pod is refused, and whether no soft taint could help."""
        names, closed, repairs = self._snapshot.nodes.names, self.model.closed, self._repairs(new)
        if risk.sum() >= landing.shares.sum() - self._allowed.landing:
            refusal = self._nowhere(new, repairs)
            if refusal is not None:
                return refusal, True
        worst = int(np.lexsort((self._rank, -np.round(risk, 9)))[0])
        text = f"a probability of {float(risk[worst]):.0%}"
        if new.finding.landing.elsewhere and risk[new.pod.node] > self._allowed.landing / 2:
            code, detail = Reason.WOULD_RETURN_TO_NODE, f"with a probability of {float(risk[new.pod.node]):.0%}"
        elif self._full[worst]:
            code, detail = Reason.LIMIT_REPLACEMENTS, f"{names[worst]}, with {text}"
        elif closed[worst]:
            code, detail = Reason.TARGET_NODE_UNAVAILABLE, f"{names[worst]}, with {text}"
        elif new.finding.landing.even is not None and self._fits(new, np.array([worst]))[0]:
            # in some draws an earlier replacement has made it as full as the others
            code, detail = Reason.TARGET_NODE_NOT_BETTER, f"{names[worst]}, with {text}"
        elif repairs is not None and not repairs[worst]:
            code, detail = Reason.TARGET_NODE_NOT_BETTER, f"{names[worst]}, with {text}"
        elif self._barred_by_memory(new, landing, risk, worst):
            code, detail = Reason.TARGET_NODE_WITHOUT_MEMORY, f"{self._memory_left(new, worst)}, with {text}"
        else:
            code, detail = Reason.TARGET_NODE_WITHOUT_HEADROOM, f"{names[worst]}, with {text}"
        return Refusal.of(code, detail), False

    def _nowhere(self, new: Replacement, repairs: Bools | None) -> Refusal | None:
        """Why no node at all may take the replacement, or None."""
        feasible = self.model.feasible(new.pod)
        if isinstance(feasible, Refusal):
            return feasible
        candidates = feasible.copy()
        if new.finding.landing.elsewhere:
            candidates[new.pod.node] = False
        count = int(np.count_nonzero(candidates))
        if not count:
            return Refusal.of(Reason.NO_TARGET_NODE)
        repairing = candidates if repairs is None else candidates & repairs
        if not repairing.any():
            return Refusal.of(Reason.NO_BETTER_NODE, f"{count} nodes fit by requests")
        if (repairing & self._fits(new)).any():
            return None
        if (full := self._full & repairing).any():
            names = self._snapshot.nodes.names
            return Refusal.of(Reason.LIMIT_REPLACEMENTS, ", ".join(names[node] for node in np.flatnonzero(full)))
        if self._reserve is not None and (room := repairing & self._fits(new, by_reserve=False)).any():
            left = np.where(room, self._reserve.shares_left(self._reserve.coming[new.pod.index]), -np.inf)
            best = int(np.lexsort((self._rank, -left))[0])
            return Refusal.of(
                Reason.NO_NODE_WITH_MEMORY,
                f"{np.count_nonzero(room)} nodes have headroom in all else; {self._memory_left(new, best)}",
            )
        resource = self._resource_over(new, candidates)
        return Refusal.of(Reason.NO_NODE_WITH_HEADROOM, f"{count} nodes fit by requests{resource}")

    def _resource_over(self, new: Replacement, candidates: Bools) -> str:
        """The resource besides CPU that the node with the least overshoot would go over; empty where it is CPU."""
        if self._base is None or set(self._base.loads.resources) <= {CPU, *PREDICTED}:
            return ""
        loads, over = self._base.loads, self._base.overshoot(self._base.coming[new.pod.index])
        worst = np.where(candidates & ~self.model.closed, over.max(axis=1), np.inf)
        node = int(np.lexsort((self._rank, worst))[0])
        at = int(np.argmax(over[node]))
        if loads.resources[at] in (CPU, *PREDICTED) or not 0 < worst[node] < np.inf:
            return ""
        target = float(loads.target[node, at] / loads.room[node, at])
        return (
            f"; {self._snapshot.nodes.names[node]} would be at {percent(target + float(over[node, at]))} of its "
            f"{loads.resources[at]}, its target is {percent(target)}"
        )

    def _barred_by_memory(self, new: Replacement, landing: Landing, risk: Floats, node: int) -> bool:
        """Whether the landing on the node would hold in most draws but for the memory."""
        if self._reserve is None or self._reserve.takes_in_any_draw(
            self._reserve.coming[new.pod.index], node, self.model.draws
        ):
            return False
        otherwise = self._risks(new, landing, by_reserve=False)
        return bool(otherwise[node] < risk[node] / 2)

    def _memory_left(self, new: Replacement, node: int) -> str:
        """The memory that would stay available on the node, and the least that must."""
        assert self._reserve is not None
        loads = self._reserve.loads
        room, least = float(loads.room[node, 0]), 1.0 - float(loads.target[node, 0] / loads.room[node, 0])
        used = self._reserve.most(node, self.model.draws)[0] + self._reserve.coming[new.pod.index, 0]
        left = max(room - float(used), 0.0)
        return (
            f"{self._snapshot.nodes.names[node]} would keep {percent(left / room)} of its memory "
            f"({size(left)} of {size(room)}), at least {percent(least)} must stay available"
        )

    def _fits(
        self,
        new: Replacement,
        nodes: Rows | None = None,
        *,
        by_reserve: bool = True,
    ) -> Bools:
        """(nodes,) of all nodes, or of `nodes`: open, and at or under every target with the pod, where no draw has a
        landing."""
        every = np.arange(len(self.model.closed)) if nodes is None else nodes
        takes: Bools = ~(self.model.closed | self._full)[every]
        for each, load in self._respected(new, by_reserve):
            takes &= each.takes(load, nodes, strict=each is new.headroom)
        return self._own_node(new, every, takes)

    def _slots_fit(
        self,
        new: Replacement,
        nodes: Rows,
        slots: Rows,
        *,
        by_reserve: bool = True,
    ) -> Bools:
        """(slots,) the same with what landed in the slots."""
        takes: Bools = ~(self.model.closed | self._full)[nodes]
        if len(slots):
            for each, load in self._respected(new, by_reserve):
                takes &= each.slots_take(load, nodes, slots, strict=each is new.headroom)
        return self._own_node(new, nodes, takes)

    def _respected(self, new: Replacement, by_reserve: bool) -> Iterator[tuple[TargetHeadroom, Floats]]:
        """Each headroom that the landing must respect, with the pod's load."""
        for each in self._all:
            if by_reserve if each is self._reserve else each is new.headroom or each.balances:
                yield each, each.coming[new.pod.index]

    def _own_node(self, new: Replacement, nodes: Rows, takes: Bools) -> Bools:
        """On its own node the pod adds no load; whether it may land there is the finding's."""
        own = nodes == new.pod.node
        out: Bools = takes & ~own if new.finding.landing.elsewhere else takes | (own & ~self.model.closed[nodes])
        return out

    def _repairs(self, new: Replacement) -> Bools | None:
        """(nodes,) where the pod would repair the finding, where no draw has a landing; None = anywhere."""
        rule = new.finding.landing
        if rule.even is None:
            return rule.only
        better = self.even.better(rule.even, new.pod.node)
        return better if rule.only is None else better & rule.only

    def _slots_repair(self, new: Replacement, nodes: Rows, draws: Rows) -> Bools:
        """(slots,) the same of nodes in their draws."""
        rule = new.finding.landing
        repairs = np.ones(len(nodes), dtype=np.bool_) if rule.only is None else rule.only[nodes]
        if rule.even is not None:
            repairs = repairs & self.even.better_in_draws(rule.even, new.pod.node, draws, nodes)
        return repairs

    # ---- this plan's moves

    def count(self, pod: Pod, checked: "CheckedLanding") -> Placed:
        """Count an eviction and its replacement."""
        winners = self.model.winners(pod, checked.landing) if checked.winners is None else checked.winners
        placed = self.model.commit(pod, winners)
        self._risk += checked.risk
        self.receives[checked.landing.nodes] = True
        for headroom in self._all:
            headroom.shift(pod.index, pod.node, placed)
        self.even.count(pod.index, pod.node, placed)
        return placed

    def steer(self, nodes: Sequence[int]) -> None:
        """See these nodes with our soft taint from now on."""
        self.model.steer(nodes)

    def cordon(self, node: int) -> None:
        """Close the node and see it as cordoned from now on."""
        self.model.cordon(node)

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """See the node as cordoned inside, and undo at the end what is counted there. Soft taints stay."""
        with self._undone(self.model.as_if_cordoned(node)):
            yield

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is counted inside, and remove the soft taints of this simulation that are new."""
        tainted = self.soft_tainted
        try:
            with self._undone(self.model.tentatively()):
                yield
        finally:
            self.limit_soft_taints_to(tainted)

    @contextmanager
    def _undone(self, model: AbstractContextManager[None]) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(model)
            stack.enter_context(self.even.tentatively())
            for headroom in self._all:
                stack.enter_context(headroom.tentatively())
            before, risk, full = self.receives.copy(), self._risk.copy(), self._full.copy()
            try:
                yield
            finally:
                self.receives, self._risk, self._full = before, risk, full

    @property
    def soft_tainted(self) -> frozenset[int]:
        """Nodes with a soft taint of this simulation."""
        return frozenset(self.chosen)

    @property
    def chosen(self) -> Mapping[int, str]:
        """The same with the taints' values."""
        return {} if self._steering is None else self._steering.chosen

    def limit_soft_taints_to(self, nodes: frozenset[int]) -> None:
        """Remove this simulation's soft taints from all other nodes."""
        self._remove_soft_taints(sorted(self.soft_tainted - nodes))

    def _remove_soft_taints(self, nodes: list[int]) -> None:
        if self._steering is not None and nodes:
            self._steering.give_back(nodes)
            self.model.steer(nodes, away=False)


@dataclass(frozen=True, slots=True, eq=False)
class CheckedLanding:
    """A landing that holds."""

    landing: Landing
    risk: Floats
    """(nodes,) the probability that it lands there and must not, together at most MAX_RISK."""
    winners: Rows | None = None
    """(draws,) the target node in each draw, of a plan that is repeated; None = to be drawn."""
