"""Label selectors, node selectors and tolerations, with Kubernetes' semantics."""

import pytest

from rebalancer.model.cluster.match import (
    labels_match,
    node_selector_matches,
    requirement_matches,
    selector_matches,
    tolerates,
    untolerated_taint,
)
from rebalancer.model.cluster.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
)

LABELS = {"app": "web", "size": "5", "empty": ""}


def want(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (want("app", "In", "web", "api"), True),
        (want("app", "In", "api"), False),
        (want("none", "In", "web"), False),
        (want("empty", "In", ""), True),
        (want("app", "NotIn", "api"), True),
        (want("app", "NotIn", "web"), False),
        (want("none", "NotIn", "web"), True),
        (want("app", "Exists"), True),
        (want("empty", "Exists"), True),
        (want("none", "Exists"), False),
        (want("app", "DoesNotExist"), False),
        (want("none", "DoesNotExist"), True),
        (want("size", "Gt", "4"), True),
        (want("size", "Gt", "5"), False),
        (want("size", "Lt", "6"), True),
        (want("size", "Lt", "5"), False),
        (want("size", "Gt", "-1"), True),
        (want("none", "Gt", "1"), False),
        (want("app", "Gt", "1"), False),
        (want("size", "Gt"), False),
        (want("size", "Gt", "1", "2"), False),
        (want("size", "Gt", "1.5"), False),
        (want("app", "in", "web"), False),
        (want("app", ""), False),
    ],
)
def test_a_requirement_matches_as_kubernetes_says(requirement: Requirement, matches: bool) -> None:
    assert requirement_matches(requirement, LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"app": "web"}), True),
        (LabelSelector(match_labels={"app": "web", "size": "6"}), False),
        (LabelSelector(match_labels={"none": ""}), False),
        (LabelSelector(match_labels={"app": "web"}, match_expressions=(want("size", "Exists"),)), True),
        (LabelSelector(match_labels={"app": "web"}, match_expressions=(want("size", "DoesNotExist"),)), False),
        (LabelSelector(match_expressions=(want("app", "Exists"), want("none", "Exists"))), False),
    ],
)
def test_a_label_selector_matches_when_all_of_it_does(selector: LabelSelector | None, matches: bool) -> None:
    assert selector_matches(selector, LABELS) is matches


def test_a_pods_node_selector_must_hold_in_full() -> None:
    assert labels_match({}, LABELS)
    assert labels_match({"app": "web"}, LABELS)
    assert not labels_match({"app": "web", "none": "x"}, LABELS)


def test_terms_of_a_node_selector_are_alternatives() -> None:
    empty, web = NodeSelectorTerm(), NodeSelectorTerm(match_expressions=(want("app", "In", "web"),))
    named = NodeSelectorTerm(match_fields=(want("metadata.name", "In", "n1"),))
    assert not node_selector_matches(NodeSelector(), LABELS, "n1")
    assert not node_selector_matches(NodeSelector(node_selector_terms=(empty,)), LABELS, "n1")
    assert node_selector_matches(NodeSelector(node_selector_terms=(empty, web)), LABELS, "n2")
    assert node_selector_matches(NodeSelector(node_selector_terms=(named,)), {}, "n1")
    assert not node_selector_matches(NodeSelector(node_selector_terms=(named,)), {}, "n2")


TAINT = Taint(key="k", value="v", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", operator="", value="v"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="l", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", value="v", effect="PreferNoSchedule"), False),
        (Toleration(key="k", operator="Unknown", value="v"), False),
        (Toleration(), False),
    ],
)
def test_a_toleration_matches_as_kubernetes_says(toleration: Toleration, expected: bool) -> None:
    assert tolerates([toleration], TAINT) is expected
    assert tolerates([Toleration(key="x"), toleration], TAINT) is expected
    assert not tolerates([], TAINT)


def test_the_first_hard_taint_that_is_not_tolerated_is_named() -> None:
    soft, other = Taint(key="s", effect="PreferNoSchedule"), Taint(key="o", effect="NoExecute")
    assert untolerated_taint([], [soft, TAINT, other]) == TAINT
    assert untolerated_taint([Toleration(key="k", operator="Exists")], [soft, TAINT, other]) == other
    assert untolerated_taint([Toleration(operator="Exists")], [soft, TAINT, other]) is None
    assert untolerated_taint([], [soft]) is None
    assert untolerated_taint([], [TAINT, soft], ("PreferNoSchedule",)) == soft
    one_shot = (each for each in [Toleration(key="k", operator="Exists"), Toleration(key="o", operator="Exists")])
    assert untolerated_taint(one_shot, [other, TAINT]) is None
