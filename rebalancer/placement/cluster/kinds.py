"""Kinds of pods: pods that the scheduler can't tell apart are one kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.match import labels_match, pairs_of, selector_matches
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools, Floats, Ints, Rows
from rebalancer.placement.cluster.nodes import HOSTNAME

CPU, MEMORY, SCORED_CPU, SCORED_MEMORY, PODS = range(5)
"""Columns of requests: `PodKinds.demand`, and `held` and `booked` of a `Board`."""

POD_COUNT = "pods"
"""The number of pods, as a resource."""

MANY_KINDS = 64
NO_LABELS: Mapping[str, str] = {}

Spaces = frozenset[int] | None
"""Indices of namespaces; None = all."""


class Kind(NamedTuple):
    """Everything that the scheduler reads of a pod: pods of one kind are interchangeable."""

    template: int
    namespace: int
    owner: int
    """Index of its direct controlling owner, for default spreading; -1 = none."""


@dataclass(frozen=True, slots=True)
class Group:
    """A set of kinds with weights; `key` is that of its tally."""

    key: object
    weights: Mapping[int, float]
    """Number of a kind -> amount that one pod of it adds."""


class Counted(NamedTuple):
    """Pods that a rule of another pod counts."""

    group: Group
    key: str = HOSTNAME
    """The topology key by whose domains it counts them; HOSTNAME: node by node."""
    eligible: Bools | None = None
    """(nodes,) nodes whose pods it counts; None = all."""


class PodKinds:
    """The kinds of a snapshot's pods in ascending order, and the groups of them that plugins count."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        pods, self._snapshot = snapshot.pods, snapshot
        owners, templates = len(snapshot.owners) + 1, max(len(snapshot.pod_templates), 1)
        codes = (pods.namespace.astype(np.int64) * owners + (pods.owner + 1)) * templates + pods.template
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        self._templates, self._owners = pods.template[first], pods.owner[first]
        self._kinds = list(map(Kind, self._templates.tolist(), pods.namespace[first].tolist(), self._owners.tolist()))
        self._of_pod = number.reshape(-1)
        self.demand: Floats = np.column_stack([column[first] for column in requests_of(pods)])
        """(kinds, 5) requests of one pod of a kind."""
        active = np.flatnonzero(snapshot.active)
        # numpy sorts integers of 16 bits ten times as fast
        small = self._of_pod[active].astype(np.min_scalar_type(len(self._kinds)))
        active = active[np.argsort(small, kind="stable")]
        self._active = active
        self._active_kind = self._of_pod[active]
        self._active_node = pods.node[active].astype(np.int64)
        self._active_stays = (~pods.terminating[active]).astype(np.float64)
        self._starts = np.searchsorted(self._active_kind, np.arange(len(self._kinds) + 1)).tolist()
        self._groups: dict[object, Group] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, number: int) -> Kind:
        return self._kinds[number]

    @cached_property
    def _numbers(self) -> Mapping[Kind, int]:
        return {kind: index for index, kind in enumerate(self._kinds)}

    @cached_property
    def _of_template(self) -> Mapping[int, list[int]]:
        return _numbered(self._templates)

    @cached_property
    def _of_owner(self) -> Mapping[int, list[int]]:
        return _numbered(self._owners)

    @cached_property
    def affinities(self) -> Mapping[bytes, list[int]]:
        """Affinity, as in `PodTemplateOutline` -> numbers of its kinds, ascending."""
        return {text: self._with(found) for text, found in self._snapshot.pod_templates.index.affinities.items()}

    @cached_property
    def spreading(self) -> list[int]:
        """Numbers of the kinds with topology spread constraints of their own, ascending."""
        return self._with(self._snapshot.pod_templates.index.spreading)

    def _with(self, templates: Iterable[int]) -> list[int]:
        return sorted(number for template in templates for number in self._of_template.get(template, ()))

    def of(self, pod: int) -> Kind:
        """The kind of one of the snapshot's pods."""
        return self._kinds[int(self._of_pod[pod])]

    def numbers_of(self, pods: Rows) -> Rows:
        """Numbers of the kinds of these pods."""
        numbers: Rows = self._of_pod[pods]
        return numbers

    def active(self, chosen: Bools) -> tuple[Rows, list[int]]:
        """The snapshot's active pods among `chosen` (pods,) by kind, those of a kind in the snapshot's order; and
        (kinds + 1,) the position at which each kind begins."""
        kept = chosen[self._active]
        starts = np.concatenate([[0], np.cumsum(kept)])[self._starts]
        return self._active[kept], starts.tolist()

    def requested(self, pods: Rows, resources: Sequence[str]) -> Floats:
        """(pods, resources) what each of these pods holds of cpu, memory, POD_COUNT or an extended resource."""
        numbers, columns = self._of_pod[pods], {"cpu": CPU, "memory": MEMORY, POD_COUNT: PODS}
        out = np.zeros((len(pods), len(resources)))
        for at, name in enumerate(resources):
            if name in columns:
                out[:, at] = self.demand[numbers, columns[name]]
                continue
            each, place = np.unique(numbers, return_inverse=True)
            held = [self.template_of(self._kinds[number]).extended_requests.get(name, 0.0) for number in each.tolist()]
            out[:, at] = np.array(held)[place.reshape(-1)] if held else 0.0
        return out

    def number_of(self, kind: Kind) -> int:
        """Number of a kind: its row of `demand`."""
        return self._numbers[kind]

    def template_of(self, kind: Kind) -> PodTemplate:
        """The template of a kind."""
        return self._snapshot.pod_templates[kind.template]

    # ---- groups

    @property
    def groups(self) -> Iterable[Group]:
        """All groups that were asked for."""
        return self._groups.values()

    def selected(self, selectors: tuple[LabelSelector | None, ...], namespaces: tuple[Spaces, ...]) -> Group:
        """The kinds that every selector selects, each within its namespaces (None = all)."""

        def weights() -> Mapping[int, float]:
            found = list(map(self._matching, selectors, namespaces))
            return dict.fromkeys(sorted(set.intersection(*found)) if found else (), 1.0)

        return self._group(("selected", tuple(map(_content, selectors)), namespaces), weights)

    def _matching(self, selector: LabelSelector | None, namespaces: Spaces) -> set[int]:
        if selector is None:
            return set()
        return {
            kind
            for template in self._candidates(selector)
            if selector_matches(selector, self._snapshot.pod_templates[template].labels)
            for kind in self._of_template.get(template, ())
            if namespaces is None or self._kinds[kind].namespace in namespaces
        }

    def _candidates(self, selector: LabelSelector) -> Iterable[int]:
        """Templates that may match: those with the rarest label pair that the selector requires."""
        pairs = pairs_of(selector)
        if not pairs:
            return self._of_template
        found: list[int] = min(map(self._snapshot.pod_templates.index.may_have, pairs), key=len).tolist()
        return found

    def owned_by(self, owner: int, labels: Mapping[str, str] = NO_LABELS) -> Group:
        """The kinds of one direct controlling owner that have all these labels."""
        owned = self._of_owner.get(owner, ())
        chosen = [each for each in owned if labels_match(labels, self.template_of(self._kinds[each]).labels)]
        # nearly always all have them: then it is one group with that of the owner
        narrowed = tuple(sorted(labels.items())) if len(chosen) < len(owned) else ()
        return self._group(("owner", owner, narrowed), lambda: dict.fromkeys(chosen, 1.0))

    def grouped(self, key: object, weight_of: Callable[[Kind, PodTemplate], float]) -> Group:
        """The kinds with a weight other than 0; `weight_of` is called once for each kind."""

        def weights() -> Mapping[int, float]:
            found = ((number, weight_of(kind, self.template_of(kind))) for number, kind in enumerate(self._kinds))
            return {number: weight for number, weight in found if weight}

        return self._group(key, weights)

    def _group(self, key: object, weights: Callable[[], Mapping[int, float]]) -> Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, weights())
        return group

    def over_nodes(self, weights: Mapping[int, float], nodes: int) -> tuple[Floats, Floats]:
        """(nodes,) the snapshot's active pods with their weights; and the same without terminating pods."""
        if len(weights) > MANY_KINDS:
            by_kind = np.zeros(len(self._kinds))
            by_kind[list(weights)] = list(weights.values())
            at, values, stays = self._active_node, by_kind[self._active_kind], self._active_stays
        else:
            starts = self._starts
            slices = [slice(starts[kind], starts[kind + 1]) for kind in weights] or [slice(0, 0)]
            if len(slices) == 1:
                at, stays = self._active_node[slices[0]], self._active_stays[slices[0]]
                values = np.full(len(at), next(iter(weights.values()), 0.0))
            else:
                at = np.concatenate([self._active_node[each] for each in slices])
                stays = np.concatenate([self._active_stays[each] for each in slices])
                values = np.repeat(list(weights.values()), [each.stop - each.start for each in slices])
        # the sum of no rows has integer type
        held = np.bincount(at, weights=values, minlength=nodes).astype(np.float64, copy=False)
        staying = held.copy()
        if not stays.all():
            staying -= np.bincount(at, weights=values * (1.0 - stays), minlength=nodes)
        return held, staying


def requests_of(pods: Pods) -> tuple[Floats, ...]:
    """Each (pods,), in the order of the columns."""
    return (
        pods.cpu_request_millicores,
        pods.memory_request_bytes,
        pods.cpu_scored_millicores,
        pods.memory_scored_bytes,
        np.ones(len(pods)),
    )


def _numbered(column: Ints) -> dict[int, list[int]]:
    """Value -> its rows, ascending."""
    out: dict[int, list[int]] = {}
    for row, value in enumerate(column.tolist()):
        out.setdefault(value, []).append(row)
    return out


def _content(selector: LabelSelector | None) -> object:
    """A selector in a hashable form."""
    return None if selector is None else (tuple(selector.match_labels.items()), selector.match_expressions)
