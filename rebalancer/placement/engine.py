"""kube-scheduler's decision for one pod over a board: the feasible nodes and their scores.

Source: Kubernetes v1.36, `schedule_one.go` and framework/plugins. Not modelled: volume binding of unbound claims, DRA,
extenders, what Services add to default spreading. A CSI volume that pods of one node share is counted for each of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement import affinity, spread
from rebalancer.placement.affinity import Attraction, Terms
from rebalancer.placement.board import Board, Group, Kind
from rebalancer.placement.draws import Draws
from rebalancer.placement.filters import Check, NodeRules, NodeRulesCache, claims_of
from rebalancer.placement.nodes import EPS, HOSTNAME, Bools, Floats, Rows, hard_taints
from rebalancer.placement.requests import Requests, Supply
from rebalancer.placement.sampling import nodes_to_find
from rebalancer.placement.scores import default_normalised, image_locality
from rebalancer.placement.spread import EligibleNodes, Feasible, Spread

CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
BEFORE_BINDING = ("VolumeRestrictions", "NodeVolumeLimits")
TOO_MANY_VOLUMES = "node(s) exceed max volume count"


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


@dataclass(slots=True)
class _Pod:
    """Everything about one kind of pod that doesn't change."""

    kind: Kind
    template: PodTemplate
    rules: NodeRules
    requests: Requests
    spread: Spread
    attraction: Attraction
    claims: tuple[Group, ...]
    """Pods that use its ReadWriteOncePod claims."""
    attached: tuple[tuple[Group, Floats, float], ...]
    """For each CSI driver of its volumes with a limit: pods with volumes of it, (nodes,) the most that can be attached,
    and the number of its own volumes."""
    images: Floats
    filter_class: tuple[object, ...]
    only_worse: bool
    matters: frozenset[int] | None = None

    @property
    def profile(self) -> SchedulerProfile:
        """The profile of the pod's scheduler."""
        return self.rules.profile

    @property
    def depends_on_pods(self) -> bool:
        """Whether a filter depends on other pods, besides requests and ports."""
        return bool(self.claims or self.attached or self.spread.hard or self.attraction.filters)


class Engine:
    """See the module. One for each board and configuration."""

    def __init__(self, board: Board, config: SchedulerConfig | None = None) -> None:
        self.board = board
        self._config = config or SchedulerConfig()
        self._shut: Bools = np.zeros(len(board.nodes), dtype=np.bool_)
        """(nodes,) cordoned by `cordon`."""
        self._supply = Supply(board)
        self._terms: Terms | None = None
        self._requests: dict[object, Requests] = {}
        self._images: dict[object, Floats] = {}
        self._rankings: dict[tuple[Kind, int | None, int | None], _Ranking] = {}
        self._fitting: dict[tuple[int, bool, int], Feasible] = {}
        """(id of a static mask, ignores cordons, id of requests) -> feasible nodes at the board's current version."""
        self._ranked_at = -1
        self._look()

    def _look(self) -> None:
        """Take over the board's taints and cordons."""
        board = self.board
        self._hard = hard_taints(board.taints)
        self._unschedulable = board.unschedulable
        self._rules = NodeRulesCache(board, self._config)
        self._eligible = EligibleNodes(board)
        self._pods: dict[Kind, _Pod] = {}

    def start_over(self) -> None:
        """After `Board.start_over`: the engine equals a new one over the board."""
        self._shut[:] = False
        board = self.board
        if hard_taints(board.taints) == self._hard and np.array_equal(board.unschedulable, self._unschedulable):
            self._rules.see_soft_taints(board.taints)
        else:
            self._look()

    # ---- questions

    def knows(self, kind: Kind) -> Refusal | None:
        """Why the target node of such a pod can't be predicted, or None."""
        template, snapshot = self.board.template_of(kind), self.board.snapshot
        if template.scheduler_name not in self._config.profiles:
            return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, f"schedulerName {template.scheduler_name}")
        if any(volume.ephemeral is not None for volume in template.volumes):
            return Refusal.of(Reason.PLACEMENT_NOT_MODELLED, "a generic ephemeral volume may tie it to a zone or node")
        if not snapshot.claims_known and any(volume.persistent_volume_claim is not None for volume in template.volumes):
            return Refusal.of(
                Reason.PLACEMENT_NOT_MODELLED, "PersistentVolumes can't be read, they may tie it to a zone"
            )
        return None

    def feasible(self, kind: Kind, *, without: int | None = None, terminating: int | None = None) -> Bools:
        """(nodes,) nodes that pass every filter.

        `without`: the node from which one pod of this kind is gone (the evicted pod of an owner that creates its
        replacement afterwards). `terminating`: the node where one is terminating (the replacement is created at once):
        spreading doesn't count it any more, everything else does.
        """
        return self._ranking(kind, without, terminating).feasible.nodes

    def feasible_count(self, kind: Kind, *, without: int | None = None, terminating: int | None = None) -> int:
        """Number of nodes that pass every filter."""
        return self._ranking(kind, without, terminating).feasible.count

    def scores(self, kind: Kind, *, without: int | None = None, terminating: int | None = None) -> Floats:
        """(nodes,) weighted total, -inf where not feasible."""
        ranking = self._ranking(kind, without, terminating)
        if ranking.scores is None:
            pod = self._pod(kind)
            seen_going = terminating if pod.spread.soft else None  # no other score depends on terminating pods
            with self._seen(kind, without, seen_going):
                ranking.scores = self._score(pod, ranking.feasible)
        return ranking.scores

    def verdict(self, kind: Kind, *, without: int | None = None, terminating: int | None = None) -> Verdict:
        """Filters and scores of every node, for explanations."""
        pod = self._pod(kind)
        with self._seen(kind, without, terminating):
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
        pod = self._pod(kind)
        if not self._let_in(pod)[node]:
            return False
        with self.board.seen_without(freed, node) if freed is not None else nullcontext():
            if not pod.requests.fits_on(node):
                return False
            return all(bool(passes[node]) for _, passes, _ in self._by_others(pod))

    def statically_feasible(self, kind: Kind) -> Bools:
        """(nodes,) feasible by the pod's spec alone."""
        return self._let_in(self._pod(kind))

    def admits(self, kind: Kind) -> Bools:
        """(nodes,) feasible by labels, hard taints and bound volumes; cordons and room apart."""
        rules = self._rules_of(kind)
        admits: Bools = rules.fits_affinity & rules.tolerated
        return admits

    def filter_class(self, kind: Kind) -> tuple[object, ...]:
        """Equal for kinds that the filters can't tell apart."""
        return self._pod(kind).filter_class

    def only_gets_worse(self, kind: Kind) -> bool:
        """Whether no additional pod can make a node feasible for this kind."""
        return self._pod(kind).only_worse

    def with_draws(
        self,
        kind: Kind,
        draws: Draws,
        slots: Rows,
        *,
        without: int | None = None,
        terminating: int | None = None,
    ) -> Floats:
        """(slots,) weighted totals on these slots' nodes with what landed there, -inf where not feasible. Landings that
        matter to this kind by more than their requests are not seen."""
        pod = self._pod(kind)
        totals = self.scores(kind, without=without, terminating=terminating)
        with self._seen(kind, without, None):
            pod.requests.refresh()
            fits, points = pod.requests.with_draws(draws, slots)
            out: Floats = (totals - pod.requests.points)[draws.node[slots]] + points
        out[~fits] = -np.inf
        return out

    def most_gain(self, kind: Kind) -> float:
        """The most points that a node may gain by the plain requests of what lands there."""
        return self._pod(kind).requests.most_gain

    def domain_keys(self, kind: Kind) -> frozenset[str]:
        """Topology keys, but the hostname, by which other pods matter to this kind."""
        pod = self._pod(kind)
        keys = {each.key for each in (*pod.spread.hard, *pod.spread.soft)} | set(pod.attraction.near)
        keys |= {key for key, _ in (*pod.attraction.away, *pod.attraction.avoided)}
        keys |= {key for key, _, _ in pod.attraction.pulls}
        return frozenset(keys - {HOSTNAME})

    def matters(self, kind: Kind) -> frozenset[int]:
        """Numbers of the kinds whose pods change filters or scores of this kind by more than plain requests."""
        pod = self._pod(kind)
        if pod.matters is None:
            groups = [each.group for each in (*pod.spread.hard, *pod.spread.soft)]
            groups += [group for _, group in (*pod.attraction.away, *pod.attraction.avoided)]
            groups += [group for _, _, group in pod.attraction.pulls]
            groups += [group for group, _, _ in pod.attached]
            groups += [*pod.claims, *(() if pod.attraction.near_group is None else (pod.attraction.near_group,))]
            groups += [self._supply.asking(name) for name, amount in pod.template.extended_requests.items() if amount]
            groups += [self._supply.holding(port) for port in pod.template.host_ports]
            pod.matters = frozenset(number for group in groups for number in group.weights)
        return pod.matters

    def sample_size(self, kind: Kind, feasible: int) -> int:
        """How many of so many feasible nodes the scheduler scores."""
        profile, percentage = self._pod(kind).profile, self._config.percentage_of_nodes_to_score
        if profile.percentage_of_nodes_to_score is not None:
            percentage = profile.percentage_of_nodes_to_score
        most = nodes_to_find(len(self.board.nodes), percentage) if any(profile.weights.values()) else 1
        return min(most, feasible)

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """See these nodes with our soft taint from now on, or without it."""
        if nodes:
            self.board.steer(nodes, away=away)
            self._rules.see_soft_taints(self.board.taints, nodes)

    def cordon(self, node: int, *, cordoned: bool = True) -> bool:
        """See this node as cordoned, or not; returns the state before. Domains of spreading don't change."""
        before = bool(self._shut[node])
        self._shut[node] = cordoned
        self.board.touch()
        return before

    # ---- one kind

    def _pod(self, kind: Kind) -> _Pod:
        pod = self._pods.get(kind)
        if pod is None:
            pod = self._pods[kind] = self._compile(kind)
        return pod

    def _compile(self, kind: Kind) -> _Pod:
        board = self.board
        template, snapshot = board.template_of(kind), board.snapshot
        claims, rules = self._claims(kind), self._rules_of(kind)
        profile = rules.profile
        if self._terms is None:
            self._terms = Terms(board)
        attraction = self._terms.compile(
            kind,
            template,
            hard_weight=profile.hard_pod_affinity_weight,
            ignore_preferred=profile.ignore_preferred_terms_of_existing_pods,
        )
        spreading = spread.compile_spread(
            board,
            kind,
            template,
            profile,
            masks=self._eligible,
            fits_affinity=rules.fits_affinity,
            tolerated=rules.tolerated,
        )
        demand = board.demand[board.number_of(kind)]
        asked = (
            demand.tobytes(),
            template.scored_on_arrival,
            tuple(sorted(template.extended_requests.items())),
            template.host_ports,
            profile.name,
        )
        requests = self._requests.get(asked)
        if requests is None:
            requests = self._requests[asked] = Requests(board, self._supply, profile, demand, template)
        exclusive = tuple(self._users(claim) for claim in claims if claim in snapshot.exclusive_claims)
        attached = self._attached(kind, template)
        images = (template.images, template.volume_images)
        if images not in self._images:
            locality = image_locality(snapshot.nodes.images, template, len(board.nodes))
            self._images[images] = locality
        return _Pod(
            kind=kind,
            template=template,
            rules=rules,
            requests=requests,
            spread=spreading,
            attraction=attraction,
            claims=exclusive,
            attached=attached,
            images=self._images[images],
            filter_class=(
                asked,
                id(rules.static),
                tuple(group.key for group in exclusive),
                tuple((group.key, own) for group, _, own in attached),
                tuple((key, group.key) for key, group in (*attraction.away, *attraction.avoided)),
                kind if attraction.near or spreading.hard else None,
            ),
            only_worse=not attraction.near and not spreading.hard,
        )

    def _claims(self, kind: Kind) -> list[tuple[str, str]]:
        """(namespace, name) of its claims."""
        space = self.board.snapshot.namespaces[kind.namespace]
        return [(space, name) for name in claims_of(self.board.template_of(kind))]

    def _rules_of(self, kind: Kind) -> NodeRules:
        placed = tuple(claim for claim in self._claims(kind) if claim in self.board.snapshot.volume_nodes)
        return self._rules.of(self.board.template_of(kind), placed)

    def _users(self, claim: tuple[str, str]) -> Group:
        namespace, name = claim
        spaces = self.board.snapshot.namespaces
        return self.board.grouped(
            ("claim", *claim),
            lambda kind, template: float(spaces[kind.namespace] == namespace and name in claims_of(template)),
        )

    def _attached(self, kind: Kind, template: PodTemplate) -> tuple[tuple[Group, Floats, float], ...]:
        """As in `_Pod`."""
        limits = self.board.snapshot.volume_limits or {}
        found = []
        for driver, limit in limits.items():
            if own := self._volumes_of(kind, template, driver):
                weigh = partial(self._volumes_of, driver=driver)
                found.append((self.board.grouped(("volumes", driver), weigh), limit, own))
        return tuple(found)

    def _volumes_of(self, kind: Kind, template: PodTemplate, driver: str) -> float:
        """Number of a kind's volumes of a CSI driver."""
        snapshot = self.board.snapshot
        space = snapshot.namespaces[kind.namespace]
        return float(sum(snapshot.claim_drivers.get((space, name)) == driver for name in claims_of(template)))

    # ---- ranking

    def _seen(self, kind: Kind, without: int | None, terminating: int | None) -> AbstractContextManager[None]:
        if without is not None:
            return self.board.seen_without(kind, without)
        if terminating is not None:
            return self.board.seen_without(kind, terminating, terminating=True)
        return nullcontext()

    def _ranking(self, kind: Kind, without: int | None, terminating: int | None) -> _Ranking:
        pod = self._pod(kind)
        if self._ranked_at != self.board.version:
            self._ranked_at = self.board.version
            self._rankings.clear()
            self._fitting.clear()
        ranking = self._rankings.get((kind, without, terminating))
        if ranking is None:
            if pod.depends_on_pods or without is not None:
                with self._seen(kind, without, terminating):
                    pod.requests.refresh()
                    nodes = self._let_in(pod) & pod.requests.fits
                    for _, passes, _ in self._by_others(pod):
                        nodes &= passes
                ranking = _Ranking(Feasible(nodes))
            else:
                ranking = _Ranking(self._fitting_nodes(pod))  # only spreading depends on terminating pods
            self._rankings[kind, without, terminating] = ranking
        return ranking

    def _let_in(self, pod: _Pod) -> Bools:
        """(nodes,) feasible by the pod's spec alone."""
        rules = pod.rules
        return rules.static if rules.ignores_cordons or not self._shut.any() else rules.static & ~self._shut

    def _fitting_nodes(self, pod: _Pod) -> Feasible:
        key = (id(pod.rules.static), pod.rules.ignores_cordons, id(pod.requests))
        fitting = self._fitting.get(key)
        if fitting is None:
            pod.requests.refresh()
            fitting = self._fitting[key] = Feasible(self._let_in(pod) & pod.requests.fits)
        return fitting

    def _by_others(self, pod: _Pod) -> Iterator[Check]:
        """The filters that depend on other pods, besides requests and ports."""
        board, filters = self.board, pod.profile.filters
        for group in pod.claims:
            if "VolumeBinding" in filters and board.present(board.tally(group)).sum() > EPS:
                yield "VolumeRestrictions", ~_everywhere(board), CLAIM_IN_USE
        for group, limit, own in pod.attached:
            if "NodeVolumeLimits" in filters:
                yield "NodeVolumeLimits", board.present(board.tally(group)) + own <= limit + EPS, TOO_MANY_VOLUMES
        if pod.spread.hard and "PodTopologySpread" in filters:
            labelled, kept = spread.allows(board, pod.spread)
            yield "PodTopologySpread", labelled, spread.NO_LABEL
            yield "PodTopologySpread", kept, spread.NO_MATCH
        if pod.attraction.filters and "InterPodAffinity" in filters:
            near, away, avoided = affinity.allows(board, pod.attraction)
            yield "InterPodAffinity", near, affinity.NO_AFFINITY
            yield "InterPodAffinity", away, affinity.NO_ANTI_AFFINITY
            yield "InterPodAffinity", avoided, affinity.NO_EXISTING

    def _all_checks(self, pod: _Pod) -> Iterator[Check]:
        """Every filter, in the scheduler's order."""
        yield from (check for check in pod.rules.checks if check[0] != "VolumeBinding")
        yield from pod.requests.lacking()
        others = list(self._by_others(pod))
        yield from (check for check in others if check[0] in BEFORE_BINDING)
        yield from (check for check in pod.rules.checks if check[0] == "VolumeBinding")
        yield from (check for check in others if check[0] not in BEFORE_BINDING)

    def _score(self, pod: _Pod, feasible: Feasible) -> Floats:
        pod.requests.refresh()
        # sums of whole numbers: their order doesn't matter
        total = pod.requests.points.copy()
        for plugin, _, normalised in self._parts(pod, feasible, explained=False):
            total += pod.profile.weights[plugin] * normalised
        if feasible.count < len(total):
            np.copyto(total, -np.inf, where=~feasible.nodes)
        return total

    def _parts(self, pod: _Pod, feasible: Feasible, *, explained: bool = True) -> Iterator[tuple[str, Floats, Floats]]:
        """Each score plugin with its raw and its normalised score. Skipped plugins are left out; without `explained`
        also those in `Requests.points`."""
        weights, rules = pod.profile.weights, pod.rules
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


def _everywhere(board: Board) -> Bools:
    return np.ones(len(board.nodes), dtype=np.bool_)
