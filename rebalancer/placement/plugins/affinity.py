"""InterPodAffinity: required terms as a filter, preferred ones as a score, in both directions.

Source: Kubernetes v1.36, plugins/interpodaffinity (`filtering.go`, `scoring.go`, `plugin.go`). Terms of existing pods
are grouped by distinct (term, namespace), so that each is matched once with an incoming pod.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.cluster.match import pairs_of, selector_matches
from rebalancer.model.cluster.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, PodTemplate
from rebalancer.model.cluster.releases import NAMESPACES_OF_OWN_TERMS
from rebalancer.model.cluster.scheduler import SchedulerProfile
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Counted, Group, Kind
from rebalancer.placement.cluster.nodes import EPS, HOSTNAME

ANTI, NEAR, PREFERRED = "anti", "near", "preferred"

NO_AFFINITY = "node(s) didn't match pod affinity rules"
NO_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
NO_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

EVERYTHING = LabelSelector()

POD_TERMS = b'"pod'
"""In the JSON of every affinity that has podAffinity or podAntiAffinity."""


@dataclass(slots=True)
class _Held:
    """One distinct term of existing pods."""

    role: str
    weight: float
    term: PodAffinityTerm
    namespaces: frozenset[int] | None
    holders: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attraction:
    """InterPodAffinity of one kind of pod."""

    near: tuple[str, ...]
    """Topology keys of its required affinity terms."""
    near_group: Group | None
    """The pods that match all of them."""
    near_itself: bool
    away: tuple[tuple[str, Group], ...]
    """Topology key and matching pods of its required anti-affinity."""
    avoided: tuple[tuple[str, Group], ...]
    """Of existing pods' required anti-affinity that selects it: topology key and holders."""
    pulls: tuple[tuple[str, float, Group], ...]
    """Topology key, weight (negative: away) and pods that count for its score."""
    counted: bool
    """False where the score plugin skips it."""
    pulls_itself: bool
    """A pod of this kind makes its node more attractive for the next."""

    @property
    def filters(self) -> bool:
        """Whether it can reject a node."""
        return bool(self.near or self.away or self.avoided)

    @property
    def matters(self) -> list[Counted]:
        """Pods that matter to it."""
        out = [Counted(group, key) for key, group in (*self.away, *self.avoided)]
        out += [Counted(group, key) for key, _, group in self.pulls]
        return out if self.near_group is None else out + [Counted(self.near_group, key) for key in self.near]


class Terms:
    """The terms of all pods of a board, indexed by the label pairs that they require."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._namespaces: dict[object, frozenset[int] | None] = {}
        table: dict[object, _Held] = {}
        kinds = sorted((kind, text) for text, kinds in board.kinds.affinities.items() for kind in kinds)
        terms: dict[bytes, list[tuple[str, float, PodAffinityTerm, str]]] = {}
        for number, text in kinds:
            if text not in terms:
                found = _terms(json_decoder(Affinity).decode(text)) if POD_TERMS in text else ()
                terms[text] = [(*each, repr(each[2])) for each in found]
            own = board.kinds[number].namespace
            for role, weight, term, text_of_term in terms[text]:
                name = (role, weight, text_of_term, -1 if term.namespaces else own)
                held = table.get(name)
                if held is None:
                    held = table[name] = _Held(role, weight, term, self.namespaces(term, own))
                held.holders[number] = held.holders.get(number, 0.0) + 1.0
        self._by_pair: dict[tuple[str, str] | None, list[tuple[object, _Held]]] = {}
        for key, held in table.items():
            selector = held.term.label_selector
            pair = next(iter(pairs_of(selector)), None) if selector is not None else None
            self._by_pair.setdefault(pair, []).append((key, held))

    def namespaces(self, term: PodAffinityTerm, own: int) -> frozenset[int] | None:
        """Indices of the namespaces of a term of a pod in namespace `own`; None = all."""
        key = (repr(term.namespace_selector), term.namespaces, own)
        if key not in self._namespaces:
            self._namespaces[key] = self._find_namespaces(term, own)
        return self._namespaces[key]

    def _find_namespaces(self, term: PodAffinityTerm, own: int) -> frozenset[int] | None:
        snapshot, selector = self._board.snapshot, term.namespace_selector
        if not term.namespaces and selector is None:
            return frozenset({own})
        if selector == EVERYTHING:
            return None
        return frozenset(
            index
            for index, name in enumerate(snapshot.namespaces)
            if name in term.namespaces or selector_matches(selector, snapshot.namespace_labels.get(name, {}))
        )

    def selecting(self, kind: Kind, template: PodTemplate) -> Iterator[tuple[object, _Held]]:
        """The terms of existing pods that select this kind."""
        for pair in (None, *template.labels.items()):
            for key, held in self._by_pair.get(pair, ()):
                if _looks_at(held.namespaces, kind) and selector_matches(held.term.label_selector, template.labels):
                    yield key, held

    def required_anti(self) -> Iterator[tuple[str, Group, Group]]:
        """Each distinct required anti-affinity term: its topology key, the pods that have it, the pods it selects."""
        for found in self._by_pair.values():
            for key, held in found:
                if held.role == ANTI:
                    selected = self._board.kinds.selected((held.term.label_selector,), (held.namespaces,))
                    yield held.term.topology_key, Group(("held", key), held.holders), selected

    def required_near(self) -> Iterator[tuple[int, tuple[str, ...], Group, Group]]:
        """Each distinct set of required affinity terms in a namespace (index): its topology keys, the pods that have
        it, the pods that match all its terms."""
        kinds = self._board.kinds
        for text, numbers in kinds.affinities.items():
            near = _of(json_decoder(Affinity).decode(text).pod_affinity).required if POD_TERMS in text else ()
            if not near:
                continue
            by_namespace: dict[int, dict[int, float]] = {}
            for number in numbers:
                by_namespace.setdefault(kinds[number].namespace, {})[number] = 1.0
            for namespace, holders in by_namespace.items():
                # of kinds in one namespace the terms mean the same
                selected = self._group(near, kinds[next(iter(holders))])
                keys = tuple(dict.fromkeys(term.topology_key for term in near))
                yield namespace, keys, Group(("needs", text, namespace), holders), selected

    def compile(self, kind: Kind, template: PodTemplate, profile: SchedulerProfile) -> Attraction:
        """What the terms mean to a kind."""
        affinity = template.affinity
        near = _of(affinity.pod_affinity).required if affinity is not None else ()
        away = _of(affinity.pod_anti_affinity).required if affinity is not None else ()
        own = [(term, weight) for role, weight, term in _terms(affinity) if role == PREFERRED]
        counted = bool(own) or not profile.ignore_preferred_terms_of_existing_pods
        avoided, pulls, pulls_itself = [], [], False
        number = self._board.kinds.number_of(kind)
        for key, held in self.selecting(kind, template):
            group = Group(("held", key), held.holders)
            if held.role == ANTI:
                avoided.append((held.term.topology_key, group))
                continue
            weight = float(profile.hard_pod_affinity_weight) if held.role == NEAR else held.weight
            if counted and weight:
                pulls.append((held.term.topology_key, weight, group))
                pulls_itself |= weight > 0 and number in held.holders
        for term, weight in own:
            group = self._group((term,), kind)
            pulls.append((term.topology_key, weight, group))
            pulls_itself |= weight > 0 and number in group.weights
        return Attraction(
            near=tuple(term.topology_key for term in near),
            near_group=self._group(near, kind) if near else None,
            near_itself=all(self._matches(term, kind, template) for term in near),
            away=tuple((term.topology_key, self._group((term,), kind)) for term in away),
            avoided=tuple(avoided),
            pulls=tuple(pulls),
            counted=counted,
            pulls_itself=pulls_itself,
        )

    def are_unclear(self, template: PodTemplate) -> bool:
        """Whether the release that is followed takes the namespaceSelector of a term of such a pod for another one."""
        return self._board.snapshot.minor < NAMESPACES_OF_OWN_TERMS and any(
            term.namespace_selector not in (None, EVERYTHING) and selector_matches(term.namespace_selector, {})
            for _, _, term in _terms(template.affinity)
        )

    def _group(self, terms: tuple[PodAffinityTerm, ...], kind: Kind) -> Group:
        return self._board.kinds.selected(
            tuple(term.label_selector for term in terms),
            tuple(self.namespaces(term, kind.namespace) for term in terms),
        )

    def _matches(self, term: PodAffinityTerm, kind: Kind, template: PodTemplate) -> bool:
        return _looks_at(self.namespaces(term, kind.namespace), kind) and selector_matches(
            term.label_selector, template.labels
        )


def allows(board: Board, pod: Attraction) -> tuple[Bools, Bools, Bools]:
    """(nodes,) three times: by its affinity, by its anti-affinity, by existing pods' anti-affinity."""
    near = np.ones(len(board.nodes), dtype=np.bool_)
    if pod.near_group is not None:
        counts = board.present(board.tally(pod.near_group))
        labelled, found, anywhere = near.copy(), near.copy(), False
        for key in pod.near:
            domains = board.nodes.domains(key)
            sums = domains.sums(counts)
            labelled &= domains.here
            found &= sums[domains.at] > EPS
            anywhere |= bool((sums > EPS).any())
        # the first pod of a group with affinity to itself may go anywhere
        near = labelled if not anywhere and pod.near_itself else labelled & found
    return near, ~_crowded(board, pod.away), ~_crowded(board, pod.avoided)


def _crowded(board: Board, terms: Iterable[tuple[str, Group]]) -> Bools:
    crowded = np.zeros(len(board.nodes), dtype=np.bool_)
    for key, group in terms:
        crowded |= board.nodes.domains(key).around(board.present(board.tally(group))) > EPS
    return crowded


def points(board: Board, pod: Attraction, feasible: Bools) -> tuple[Floats, Floats]:
    """(nodes,) raw and normalised score."""
    by_key: dict[str, Floats] = {}
    for key, weight, group in pod.pulls:
        tally = board.tally(group)
        # a pod that is split over the nodes of a zone is in the zone for sure; on a node only whole pods count
        counts = weight * (board.present(tally) if key == HOSTNAME else tally.held + tally.booked)
        by_key[key] = by_key[key] + counts if key in by_key else counts
    raw = np.zeros(len(board.nodes))
    for key, counts in by_key.items():
        raw += board.nodes.domains(key).around(counts)
    inside = raw if feasible.all() else raw[feasible]
    least, most = float(inside.min(initial=np.inf)), float(inside.max(initial=-np.inf))
    if most - least <= EPS:
        return raw, np.zeros(len(raw))
    score = np.floor(100.0 * ((raw - least) / (most - least)))
    return raw, score if inside is raw else np.where(feasible, score, 0.0)


def _terms(affinity: Affinity | None) -> Iterator[tuple[str, float, PodAffinityTerm]]:
    if affinity is None:
        return
    near, away = _of(affinity.pod_affinity), _of(affinity.pod_anti_affinity)
    yield from ((ANTI, 0.0, term) for term in away.required)
    yield from ((NEAR, 0.0, term) for term in near.required)
    yield from ((PREFERRED, float(each.weight), each.pod_affinity_term) for each in near.preferred)
    yield from ((PREFERRED, -float(each.weight), each.pod_affinity_term) for each in away.preferred)


def _of(affinity: PodAffinity | None) -> PodAffinity:
    return affinity or PodAffinity()


def _looks_at(namespaces: frozenset[int] | None, kind: Kind) -> bool:
    return namespaces is None or kind.namespace in namespaces
