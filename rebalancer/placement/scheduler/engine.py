"""kube-scheduler's decision for one pod over a board: the feasible nodes and their scores.

Source: Kubernetes v1.37, `schedule_one.go` and framework/plugins; where 1.36 differs: `model.cluster.releases`. Not
modelled: volume binding of unbound claims, DRA, PodGroups, extenders.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Kind
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.draws.sampling import nodes_to_find
from rebalancer.placement.plugins import affinity, spread, volumes
from rebalancer.placement.plugins.affinity import Terms
from rebalancer.placement.plugins.node_rules import Check, default_normalised
from rebalancer.placement.plugins.spread import Feasible
from rebalancer.placement.scheduler.rules import PodRules, PodRulesCache

BEFORE_BINDING = ("VolumeRestrictions", "NodeVolumeLimits")
AFTER_REQUESTS = ("VolumeBinding", "NodeDeclaredFeatures")
"""Of the filters by node, those that come after requests and ports."""


class Departure(NamedTuple):
    """The pod that is replaced, as the scheduler sees it when the replacement is created."""

    node: int
    """Its node."""
    terminating: bool = False
    """The replacement is created at once: spreading doesn't count the terminating pod any more, everything else does.
    Otherwise the pod is gone: its owner creates the replacement afterwards."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Filters and scores of every node, for explanations. Arrays are (nodes,)."""

    feasible: Bools
    filtered: tuple[tuple[str, str] | None, ...]
    """The first filter that rejects the node, with its message; None where it is feasible."""
    raw: Mapping[str, Floats]
    """Score plugin -> raw score. Plugins that the scheduler skips for this pod are left out."""
    weighted: Mapping[str, Floats]
    """Score plugin -> normalised score times its weight."""
    total: Floats
    """-inf where not feasible."""


@dataclass(slots=True)
class _Ranking:
    feasible: Feasible
    scores: Floats | None = None


class Engine:
    """See the module. One for each board and configuration."""

    def __init__(self, board: Board, config: SchedulerConfig | None = None) -> None:
        self.board = board
        self._config = config or SchedulerConfig()
        self._shut: Bools = np.zeros(len(board.nodes), dtype=np.bool_)
        """(nodes,) cordoned by `cordon`."""
        self._rules = PodRulesCache(board, self._config)
        self._rankings: dict[tuple[Kind, Departure | None], _Ranking] = {}
        self._fitting: dict[tuple[int, bool, int], Feasible] = {}
        """(id of a static mask, ignores cordons, id of requests) -> feasible nodes at the board's current version."""
        self._ranked_at = -1

    def start_over(self) -> None:
        """After `Board.start_over`: the engine equals a new one over the board."""
        self._shut[:] = False
        self._rules.start_over()

    # ---- questions

    def knows(self, kind: Kind) -> Refusal | None:
        """Why the target node of such a pod can't be predicted, or None."""
        template, snapshot = self.board.kinds.template_of(kind), self.board.snapshot
        if template.scheduler_name not in self._config.profiles:
            return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, f"schedulerName {template.scheduler_name}")
        if any(volume.ephemeral is not None for volume in template.volumes):
            return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, "a generic ephemeral volume may tie it to a zone or node")
        if not snapshot.claims_known and any(volume.persistent_volume_claim is not None for volume in template.volumes):
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, "PersistentVolumes can't be read, they may tie it to a zone"
            )
        if volumes.drivers_unknown(snapshot, kind, template):
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, "CSIDrivers can't be read, they may keep it off nodes without its driver"
            )
        profile = self._config.profiles[template.scheduler_name]
        if self.terms().are_unclear(template):
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, "before Kubernetes 1.37 its namespaceSelector selects all namespaces"
            )
        unread = snapshot.services is None or snapshot.namespaces[kind.namespace] in snapshot.unread_services
        if unread and spread.by_services_alone(snapshot, kind, template, profile):
            return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, "Services can't be read, they may spread its pods")
        return None

    def terms(self) -> Terms:
        """The affinity terms of all pods of the board."""
        return self._rules.terms

    def rules(self, kind: Kind) -> PodRules:
        """The rules of a kind."""
        return self._rules.of(kind)

    def feasible(self, kind: Kind, departure: Departure | None = None) -> Bools:
        """(nodes,) nodes that pass every filter; `departure` of a pod of this kind."""
        return self._ranking(kind, departure).feasible.nodes

    def feasible_count(self, kind: Kind, departure: Departure | None = None) -> int:
        """Number of nodes that pass every filter."""
        return self._ranking(kind, departure).feasible.count

    def scores(self, kind: Kind, departure: Departure | None = None) -> Floats:
        """(nodes,) weighted total, -inf where not feasible."""
        ranking = self._ranking(kind, departure)
        if ranking.scores is None:
            rules = self.rules(kind)
            # no other score depends on terminating pods
            unseen = departure is not None and departure.terminating and not rules.spread.soft
            with self._seen(kind, None if unseen else departure):
                ranking.scores = self._score(rules, ranking.feasible)
        return ranking.scores

    def verdict(self, kind: Kind, departure: Departure | None = None) -> Verdict:
        """Filters and scores of every node, for explanations."""
        pod = self.rules(kind)
        with self._seen(kind, departure):
            pod.requests.refresh()
            filtered: list[tuple[str, str] | None] = [None] * len(self.board.nodes)
            for plugin, passes, words in self._all_checks(pod):
                for node in np.flatnonzero(~passes):
                    known = filtered[node]
                    if known is None:
                        filtered[node] = (plugin, words)
                    elif known[0] == plugin == "NodeResourcesFit":
                        filtered[node] = (plugin, f"{known[1]}, {words}")
            feasible = np.array([each is None for each in filtered], dtype=np.bool_)
            raw, weighted, total = {}, {}, np.zeros(len(feasible))
            for plugin, counted, normalised in self._parts(pod, Feasible(feasible)):
                raw[plugin] = np.where(feasible, counted, np.nan)
                weighted[plugin] = np.where(feasible, normalised * pod.profile.weights[plugin], np.nan)
                total += normalised * pod.profile.weights[plugin]
        return Verdict(feasible, tuple(filtered), raw, weighted, np.where(feasible, total, -np.inf))

    def fits(self, kind: Kind, node: int, *, freed: Kind | None = None) -> bool:
        """Whether the kind would fit on one node once one pod of `freed` has left it."""
        pod = self.rules(kind)
        if not self._let_in(pod)[node]:
            return False
        with self.board.seen_without(freed, node) if freed is not None else nullcontext():
            if not pod.requests.fits_on(node):
                return False
            return all(bool(passes[node]) for _, passes, _ in self._by_others(pod))

    def statically_feasible(self, kind: Kind) -> Bools:
        """(nodes,) feasible by the pod's spec alone."""
        return self._let_in(self.rules(kind))

    def admits(self, kind: Kind) -> Bools:
        """(nodes,) feasible by labels, hard taints and bound volumes; cordons and room apart."""
        rules = self._rules.of_nodes(kind)
        admits: Bools = rules.fits_affinity & rules.tolerated
        return admits

    def without_requests(self, kind: Kind, departure: Departure | None = None) -> Floats:
        """(nodes,) `scores` without the part of the pod's own requests."""
        requests, totals = self.rules(kind).requests, self.scores(kind, departure)
        with self._seen_gone(kind, departure):
            requests.refresh()
            out: Floats = totals - requests.points
        return out

    def in_draws(self, kind: Kind, draws: Draws, slots: Rows, departure: Departure | None = None) -> Floats:
        """(slots,) the part of the pod's own requests on these slots' nodes, with what landed there; -inf where it
        doesn't fit by requests and ports."""
        with self._seen_gone(kind, departure):
            fits, points = self.rules(kind).requests.with_draws(draws, slots)
        return np.where(fits, points, -np.inf)

    def sample_size(self, kind: Kind, feasible: int) -> int:
        """How many of so many feasible nodes the scheduler scores."""
        profile, percentage = self.rules(kind).profile, self._config.percentage_of_nodes_to_score
        if profile.percentage_of_nodes_to_score is not None:
            percentage = profile.percentage_of_nodes_to_score
        most = nodes_to_find(len(self.board.nodes), percentage) if any(profile.weights.values()) else 1
        return min(most, feasible)

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """See these nodes with our soft taint from now on, or without it."""
        if nodes:
            self.board.steer(nodes, away=away)
            self._rules.steer(nodes)

    def cordon(self, node: int, *, cordoned: bool = True) -> bool:
        """See this node as cordoned, or not; returns the state before. Domains of spreading don't change."""
        before = bool(self._shut[node])
        self._shut[node] = cordoned
        self.board.touch()
        return before

    # ---- ranking

    def _seen(self, kind: Kind, departure: Departure | None) -> AbstractContextManager[None]:
        if departure is None:
            return nullcontext()
        return self.board.seen_without(kind, departure.node, terminating=departure.terminating)

    def _seen_gone(self, kind: Kind, departure: Departure | None) -> AbstractContextManager[None]:
        """For requests and ports, which a terminating pod still holds."""
        return self._seen(kind, None if departure is None or departure.terminating else departure)

    def _ranking(self, kind: Kind, departure: Departure | None) -> _Ranking:
        if self._ranked_at != self.board.version:
            self._ranked_at = self.board.version
            self._rankings.clear()
            self._fitting.clear()
        ranking = self._rankings.get((kind, departure))
        if ranking is None:
            pod = self.rules(kind)
            if pod.depends_on_pods or (departure is not None and not departure.terminating):
                with self._seen(kind, departure):
                    pod.requests.refresh()
                    nodes = self._let_in(pod) & pod.requests.fits
                    for _, passes, _ in self._by_others(pod):
                        nodes &= passes
                ranking = _Ranking(Feasible(nodes))
            else:
                ranking = _Ranking(self._fitting_nodes(pod))  # only spreading depends on terminating pods
            self._rankings[kind, departure] = ranking
        return ranking

    def _let_in(self, pod: PodRules) -> Bools:
        """(nodes,) feasible by the pod's spec alone."""
        rules = pod.nodes
        return rules.static if rules.ignores_cordons or not self._shut.any() else rules.static & ~self._shut

    def _fitting_nodes(self, pod: PodRules) -> Feasible:
        key = (id(pod.nodes.static), pod.nodes.ignores_cordons, id(pod.requests))
        fitting = self._fitting.get(key)
        if fitting is None:
            pod.requests.refresh()
            fitting = self._fitting[key] = Feasible(self._let_in(pod) & pod.requests.fits)
        return fitting

    def _by_others(self, pod: PodRules) -> Iterator[Check]:
        """The filters that depend on other pods, besides requests and ports."""
        board, filters = self.board, pod.profile.filters
        if "VolumeBinding" in filters:
            yield from volumes.restrictions(board, pod.volumes)
        if "NodeVolumeLimits" in filters:
            yield from volumes.limits(board, pod.volumes)
        if pod.spread.hard and "PodTopologySpread" in filters:
            labelled, kept = spread.allows(board, pod.spread)
            yield "PodTopologySpread", labelled, spread.NO_LABEL
            yield "PodTopologySpread", kept, spread.NO_MATCH
        if pod.attraction.filters and "InterPodAffinity" in filters:
            near, away, avoided = affinity.allows(board, pod.attraction)
            yield "InterPodAffinity", near, affinity.NO_AFFINITY
            yield "InterPodAffinity", away, affinity.NO_ANTI_AFFINITY
            yield "InterPodAffinity", avoided, affinity.NO_EXISTING

    def _all_checks(self, pod: PodRules) -> Iterator[Check]:
        """Every filter, in the scheduler's order."""
        yield from (check for check in pod.nodes.checks if check[0] not in AFTER_REQUESTS)
        yield from pod.requests.lacking()
        others = list(self._by_others(pod))
        yield from (check for check in others if check[0] in BEFORE_BINDING)
        yield from (check for check in pod.nodes.checks if check[0] == "VolumeBinding")
        yield from (check for check in others if check[0] not in BEFORE_BINDING)
        yield from (check for check in pod.nodes.checks if check[0] == "NodeDeclaredFeatures")

    def _score(self, pod: PodRules, feasible: Feasible) -> Floats:
        pod.requests.refresh()
        # sums of whole numbers: their order doesn't matter
        total = pod.requests.points.copy()
        for plugin, _, normalised in self._parts(pod, feasible, explained=False):
            total += pod.profile.weights[plugin] * normalised
        if feasible.count < len(total):
            np.copyto(total, -np.inf, where=~feasible.nodes)
        return total

    def _parts(
        self, pod: PodRules, feasible: Feasible, *, explained: bool = True
    ) -> Iterator[tuple[str, Floats, Floats]]:
        """Each score plugin with its raw and its normalised score. Skipped plugins are left out; without `explained`
        also those in `Requests.points`."""
        weights, rules = pod.profile.weights, pod.nodes
        if not feasible.count:
            return
        soft = rules.soft_taints
        if weights.get("TaintToleration"):
            yield "TaintToleration", soft, default_normalised(soft, feasible.nodes, reverse=True)
        if weights.get("NodeAffinity") and rules.preferred is not None:
            yield "NodeAffinity", rules.preferred, default_normalised(rules.preferred, feasible.nodes)
        if weights.get("NodeResourcesFit") and explained:
            yield "NodeResourcesFit", *pod.requests.fit_points()
        if weights.get("PodTopologySpread") and pod.spread.soft:
            sampled = self.sample_size(pod.kind, feasible.count) / feasible.count
            found = spread.points(self.board, pod.spread, feasible, sampled, with_raw=explained)
            yield "PodTopologySpread", *found
        if weights.get("InterPodAffinity") and pod.attraction.counted and pod.attraction.pulls:
            yield "InterPodAffinity", *affinity.points(self.board, pod.attraction, feasible.nodes)
        if weights.get("NodeResourcesBalancedAllocation") and pod.requests.balances and explained:
            yield "NodeResourcesBalancedAllocation", *pod.requests.balance_points()
        if weights.get("ImageLocality") and (explained or pod.images.any()):
            yield "ImageLocality", pod.images, pod.images
