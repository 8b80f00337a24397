"""Nodes by labels. A label key is a column of small numbers: a selector is evaluated once a value.

Sources: Kubernetes v1.36, component-helpers `nodeaffinity`; topology domains as in plugins podtopologyspread and
interpodaffinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.match import requirement_matches
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import NodeSelector, NodeSelectorTerm, Requirement
from rebalancer.model.notation.arrays import Bools, Floats, Rows

"""Indices of nodes."""

EPS = 1e-6
"""Slack for sums of fractional bookings; whole pods add up exactly."""

NAME_FIELD = "metadata.name"

HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Domains:
    """The topology domains of one label key."""

    at: Rows
    """(nodes,) number of each node's domain; `len(values)` where the node lacks the label."""
    values: tuple[str, ...]
    here: Bools
    """(nodes,) whether the node has the label."""
    alone: bool
    """Every node has a value of its own, as with hostnames."""

    def sums(self, counts: Floats) -> Floats:
        """(domains + 1,) sum of `counts` (nodes,) over each domain; the last, of nodes without the label, is 0."""
        sums: Floats = np.bincount(self.at, weights=counts, minlength=len(self.values) + 1).astype(np.float64)
        sums[-1] = 0.0
        return sums

    def around(self, counts: Floats) -> Floats:
        """(nodes,) sum of `counts` (nodes,) over the node's domain."""
        if self.alone:
            return counts
        around: Floats = self.sums(counts)[self.at]
        return around


class NodeTable:
    """Labels of the nodes, indexed."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._domains: dict[str, Domains] = {}
        self._labelled: dict[tuple[str, ...], Bools] = {}
        self._requirements: dict[Requirement, Bools] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def domains(self, key: str) -> Domains:
        """The column of a label key."""
        found = self._domains.get(key)
        if found is None:
            held = [labels.get(key) for labels in self._nodes.labels]
            values = tuple(sorted({value for value in held if value is not None}))
            number: dict[str | None, int] = {value: index for index, value in enumerate(values)}
            number[None] = len(values)
            at = np.array([number[value] for value in held], dtype=np.int64)
            found = self._domains[key] = Domains(at, values, at < len(values), alone=len(values) == len(held))
        return found

    def labelled(self, keys: tuple[str, ...]) -> Bools:
        """(nodes,) nodes that have every label."""
        mask = self._labelled.get(keys)
        if mask is None:
            mask = self._labelled[keys] = np.ones(len(self), dtype=np.bool_)
            for key in keys:
                mask &= self.domains(key).here
        return mask

    def has_pairs(self, pairs: Mapping[str, str]) -> Bools:
        """(nodes,) nodes with every pair (a pod's `nodeSelector`)."""
        mask = np.ones(len(self), dtype=np.bool_)
        for key, value in pairs.items():
            mask &= self._satisfies(Requirement(key=key, operator="In", values=(value,)))
        return mask

    def selected(self, selector: NodeSelector) -> Bools:
        """(nodes,) nodes that any term selects; no terms select nothing."""
        mask = np.zeros(len(self), dtype=np.bool_)
        for term in selector.node_selector_terms:
            mask |= self.matches(term)
        return mask

    def matches(self, term: NodeSelectorTerm) -> Bools:
        """(nodes,) nodes that one term selects; an empty term selects nothing."""
        if not term.match_expressions and not term.match_fields:
            return np.zeros(len(self), dtype=np.bool_)
        mask = np.ones(len(self), dtype=np.bool_)
        for each in term.match_expressions:
            mask &= self._satisfies(each)
        for each in term.match_fields:
            mask &= self._field_satisfies(each)
        return mask

    def _satisfies(self, requirement: Requirement) -> Bools:
        mask = self._requirements.get(requirement)
        if mask is None:
            domains = self.domains(requirement.key)
            answers = [requirement_matches(requirement, {requirement.key: value}) for value in domains.values]
            answers.append(requirement_matches(requirement, {}))
            mask = self._requirements[requirement] = np.array(answers, dtype=np.bool_)[domains.at]
        return mask

    def _field_satisfies(self, requirement: Requirement) -> Bools:
        if requirement.key != NAME_FIELD:
            return np.zeros(len(self), dtype=np.bool_)
        names = self._nodes.names
        return np.fromiter((requirement_matches(requirement, {NAME_FIELD: name}) for name in names), bool, len(names))
