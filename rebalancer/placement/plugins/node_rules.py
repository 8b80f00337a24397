"""kube-scheduler's plugins that go by nodes' labels, taints, cordons and volumes alone.

Source: Kubernetes v1.37, plugins nodeunschedulable, tainttoleration, nodeaffinity, volumebinding and
nodedeclaredfeatures. Node readiness is
no filter: the scheduler goes by taints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.match import tolerates, untolerated_taint
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import NodeAffinity, NodeSelector, PodTemplate, Taint, Toleration
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.cluster.steering import UNSCHEDULABLE
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.nodes import NodeTable
from rebalancer.placement.plugins.resources import MAX_SCORE

Check = tuple[str, Bools, str]
"""A filter plugin, (nodes,) where the pod passes, and the message where it doesn't."""

NO_FEATURES = "node(s) didn't match Pod's required features"


class StaticFilter:
    """Feasibility by node attributes, one mask for each distinct rule."""

    def __init__(
        self,
        nodes: Nodes,
        table: NodeTable,
        taints: Sequence[tuple[Taint, ...]],
        unschedulable: Bools | None = None,
    ) -> None:
        """`taints` and `unschedulable` (nodes,) as the scheduler sees them; None = as in `nodes`."""
        self._table = table
        self._declared = nodes.declared_features
        self._unschedulable = nodes.unschedulable if unschedulable is None else unschedulable
        self._taints: Sequence[tuple[Taint, ...]] = ()
        self._tainted: dict[tuple[Taint, ...], list[int]] = {}
        """Nodes by their taints; empty where it has to be made again."""
        self._hard: dict[tuple[Toleration, ...], Bools] = {}
        self._soft: dict[tuple[Toleration, ...], Floats] = {}
        self._selected: dict[object, Bools] = {}
        self._preferred: dict[str, Floats] = {}
        self.see_soft_taints(taints)

    def see_soft_taints(self, taints: Sequence[tuple[Taint, ...]], changed: Sequence[int] | None = None) -> None:
        """`taints` (nodes,) differ from before in soft taints only, of the nodes `changed`; None = of any. Returned
        arrays are updated in place."""
        self._taints = taints
        self._tainted.clear()
        for tolerations, counts in self._soft.items():
            if changed is None:
                self._count_soft(tolerations, counts)
                continue
            for node in changed:
                counts[node] = _soft_of(taints[node], tolerations)

    def _by_taints(self) -> dict[tuple[Taint, ...], list[int]]:
        if not self._tainted:
            for index, each in enumerate(self._taints):
                self._tainted.setdefault(each, []).append(index)
        return self._tainted

    def checks(
        self,
        template: PodTemplate,
        *,
        added: NodeAffinity | None = None,
        volume_nodes: tuple[NodeSelector, ...] = (),
    ) -> list[Check]:
        """The result of each filter, in the scheduler's order. `added` is the profile's `addedAffinity`; `volume_nodes`
        are the node affinities of the pod's volumes."""
        everywhere = np.ones(len(self._table), dtype=np.bool_)
        cordoned = tolerates(template.tolerations, UNSCHEDULABLE)
        enforced = self._by_selector(added.required) if added is not None and added.required is not None else everywhere
        volumes = everywhere
        for selector in volume_nodes:
            volumes = volumes & self._by_selector(selector)
        return [
            (
                "NodeUnschedulable",
                everywhere if cordoned else ~self._unschedulable,
                "node(s) were unschedulable",
            ),
            ("TaintToleration", self.tolerated(template.tolerations), "node(s) had untolerated taint(s)"),
            ("NodeAffinity", enforced, "node(s) didn't match scheduler-enforced node affinity"),
            ("NodeAffinity", self.node_affinity(template), "node(s) didn't match Pod's node affinity/selector"),
            ("VolumeBinding", volumes, "node(s) didn't match PersistentVolume's node affinity"),
            ("NodeDeclaredFeatures", self._declaring(template, everywhere), NO_FEATURES),
        ]

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """(nodes,) without an untolerated NoSchedule or NoExecute taint."""
        mask = self._hard.get(tolerations)
        if mask is None:
            mask = self._hard[tolerations] = np.ones(len(self._table), dtype=np.bool_)
            for taints, members in self._by_taints().items():
                if untolerated_taint(tolerations, taints) is not None:
                    mask[members] = False
        return mask

    def node_affinity(self, template: PodTemplate) -> Bools:
        """(nodes,) that match the node selector and the required node affinity."""
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        required = None if affinity is None else affinity.required
        # structs with dicts aren't hashable; their text is
        key = (_pairs(template.node_selector), repr(required))
        mask = self._selected.get(key)
        if mask is None:
            mask = self._table.has_pairs(template.node_selector)
            if required is not None:
                mask &= self._table.selected(required)
            self._selected[key] = mask
        return mask

    def _by_selector(self, selector: NodeSelector) -> Bools:
        key = repr(selector)
        mask = self._selected.get(key)
        if mask is None:
            mask = self._selected[key] = self._table.selected(selector)
        return mask

    def _declaring(self, template: PodTemplate, everywhere: Bools) -> Bools:
        if not template.required_features:
            return everywhere
        required = frozenset(template.required_features)
        return np.array([required.issubset(each) for each in self._declared], dtype=np.bool_)

    def soft_taints(self, tolerations: tuple[Toleration, ...]) -> Floats:
        """(nodes,) number of untolerated PreferNoSchedule taints."""
        counts = self._soft.get(tolerations)
        if counts is None:
            counts = self._soft[tolerations] = np.zeros(len(self._table))
            self._count_soft(tolerations, counts)
        return counts

    def _count_soft(self, tolerations: tuple[Toleration, ...], counts: Floats) -> None:
        for taints, members in self._by_taints().items():
            counts[members] = _soft_of(taints, tolerations)

    def preferred(self, *affinities: NodeAffinity | None) -> Floats | None:
        """(nodes,) sum of the weights of the preferred terms that select the node; None without such terms."""
        terms = [term for each in affinities if each is not None for term in each.preferred]
        if not terms:
            return None
        key = repr(terms)
        points = self._preferred.get(key)
        if points is None:
            points = self._preferred[key] = np.zeros(len(self._table))
            for term in terms:
                points += term.weight * self._table.matches(term.preference)
        return points


def _soft_of(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> int:
    """Number of untolerated PreferNoSchedule taints."""
    return sum(taint.effect == "PreferNoSchedule" and not tolerates(tolerations, taint) for taint in taints)


def _pairs(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What the labels, taints and cordons of nodes mean to a pod template. Arrays are (nodes,)."""

    profile: SchedulerProfile
    checks: tuple[Check, ...]
    static: Bools
    """All of `checks`."""
    fits_affinity: Bools
    tolerated: Bools
    soft_taints: Floats
    preferred: Floats | None
    ignores_cordons: bool


class NodeRulesCache:
    """The rules of each distinct template, for the board's current taints and cordons."""

    def __init__(self, board: Board, config: SchedulerConfig) -> None:
        self._board, self._config = board, config
        self._static = StaticFilter(board.snapshot.nodes, board.nodes, board.taints, board.unschedulable)
        self._rules: dict[object, NodeRules] = {}
        self._masks: dict[bytes, Bools] = {}

    def see_soft_taints(self, taints: Sequence[tuple[Taint, ...]], changed: Sequence[int] | None = None) -> None:
        """As in `StaticFilter`."""
        self._static.see_soft_taints(taints, changed)

    def of(self, template: PodTemplate, placed_claims: tuple[tuple[str, str], ...]) -> NodeRules:
        """`placed_claims`: (namespace, name) of its claims whose volume is tied to some nodes."""
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        # structs with dicts aren't hashable; their text is
        key = (
            template.scheduler_name,
            _pairs(template.node_selector),
            affinity and repr(affinity),
            template.tolerations,
            template.required_features,
            placed_claims,
        )
        rules = self._rules.get(key)
        if rules is None:
            # of pods of unknown schedulers only the filters are used, with the default profile
            profile = self._config.profiles.get(template.scheduler_name) or SchedulerProfile()
            volume_nodes = tuple(self._board.snapshot.volume_nodes[claim] for claim in placed_claims)
            checks = tuple(
                each
                for each in self._static.checks(template, added=profile.added_affinity, volume_nodes=volume_nodes)
                if each[0] in profile.filters
            )
            static = np.logical_and.reduce(
                [np.ones(len(self._board.nodes), dtype=np.bool_), *(passes for _, passes, _ in checks)]
            )
            rules = self._rules[key] = NodeRules(
                profile=profile,
                checks=checks,
                static=self._masks.setdefault(static.tobytes(), static),
                fits_affinity=self._static.node_affinity(template),
                tolerated=self._static.tolerated(template.tolerations),
                soft_taints=self._static.soft_taints(template.tolerations),
                preferred=self._static.preferred(affinity, profile.added_affinity),
                ignores_cordons=tolerates(template.tolerations, UNSCHEDULABLE)
                or "NodeUnschedulable" not in profile.filters,
            )
        return rules


def default_normalised(raw: Floats, feasible: Bools, *, reverse: bool = False) -> Floats:
    """(nodes,) `raw` scaled so that the highest feasible node has 100, cut; `reverse` turns it round."""
    most = float(raw[feasible].max(initial=0.0)) if raw.any() else 0.0
    if most <= 0:
        return np.full(len(raw), MAX_SCORE if reverse else 0.0)
    scaled: Floats = np.floor(MAX_SCORE * raw / most)
    return MAX_SCORE - scaled if reverse else scaled
