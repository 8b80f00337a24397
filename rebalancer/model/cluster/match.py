"""Selectors, tolerations and node affinity, with Kubernetes' semantics.

Sources: apimachinery `labels.Requirement.Matches`, component-helpers `nodeaffinity` and `corev1.toleration`.
"""

from collections.abc import Iterable, Mapping

from rebalancer.model.cluster.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
)

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy one expression. An unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    try:
        have, limit = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return have > limit if requirement.operator == "Gt" else have < limit


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects `labels`. None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():  # a loop: this runs a hundred thousand times in a cycle
        if labels.get(key) != value:
            return False
    return all(requirement_matches(each, labels) for each in selector.match_expressions)


def labels_match(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether `labels` contain every pair of `wanted` (a pod's `nodeSelector`)."""
    return all(labels.get(key) == value for key, value in wanted.items())


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term selects no node
    return all(requirement_matches(each, labels) for each in term.match_expressions) and all(
        each.key == "metadata.name" and requirement_matches(each, {"metadata.name": node_name})
        for each in term.match_fields
    )


def node_selector_matches(selector: NodeSelector, labels: Mapping[str, str], node_name: str) -> bool:
    """Whether any term of a required node affinity selects the node."""
    return any(_term_matches(term, labels, node_name) for term in selector.node_selector_terms)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any toleration tolerates the taint."""
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated_taint(
    tolerations: Iterable[Toleration], taints: Iterable[Taint], effects: tuple[str, ...] = HARD_EFFECTS
) -> Taint | None:
    """The first taint with one of `effects` that no toleration tolerates, or None."""
    kept = tuple(tolerations)
    return next((taint for taint in taints if taint.effect in effects and not tolerates(kept, taint)), None)


def pairs_of(selector: LabelSelector) -> list[tuple[str, str]]:
    """Label pairs that every selected pod has."""
    single = [
        (each.key, each.values[0])
        for each in selector.match_expressions
        if each.operator == "In" and len(each.values) == 1
    ]
    return [*selector.match_labels.items(), *single]
