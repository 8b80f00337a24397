"""Allow and deny lists: what each field matches, and what is refused when it's read."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.constraints.pods.lists import refuses
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.lists import ListRule, Lists
from tests.builders import a_node, a_pod, cluster


def a_pod_of(**fields: Any) -> Pod:
    pod: dict[str, Any] = {"namespace": "shop", "owner": "cart", "labels": {"tier": "front"}, **fields}
    return cluster([a_node("node-1")], [a_pod("cart-7", "node-1", **pod)]).pod(0)


def asked(pod: Pod | None = None, *, pool: str | None = "general", **lists: Any) -> Reason | None:
    refusal = refuses(pod or a_pod_of(), cluster="east", pool=pool, lists=Lists.model_validate(lists))
    return None if refusal is None else refusal.code


MATCHING: list[Mapping[str, Any]] = [
    {"clusters": ["east"]},
    {"clusters": ["west", "ea*"]},
    {"pools": ["gen*"]},
    {"nodes": ["node-?"]},
    {"namespaces": ["sh[aeiou]p"]},
    {"services": ["shop/cart"]},
    {"services": ["*/cart"]},
    {"services": ["shop/*"]},
    {"services": ["*"]},
    {"selector": {"matchLabels": {"tier": "front"}}},
    {"selector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]}},
    {
        "clusters": ["east"],
        "pools": ["general"],
        "nodes": ["node-1"],
        "namespaces": ["shop"],
        "services": ["shop/cart"],
    },
]
OTHER: list[Mapping[str, Any]] = [
    {"clusters": ["west"]},
    {"clusters": ["East"]},
    {"pools": ["batch"]},
    {"nodes": ["node"]},
    {"namespaces": ["sho"]},
    {"services": ["shop/cart-7"]},
    {"services": ["*/basket", "shop/car"]},
    {"selector": {"matchLabels": {"tier": "back"}}},
    {"namespaces": ["shop"], "selector": {"matchLabels": {"tier": "back"}}},
    {"clusters": ["east"], "pools": ["general"], "nodes": ["node-1"], "namespaces": ["bank"]},
]


@pytest.mark.parametrize("rule", MATCHING)
def test_a_rule_that_matches_denies_or_allows(rule: Mapping[str, Any]) -> None:
    assert asked(deny=[rule]) is Reason.DENY_LISTED
    assert asked(allow=[rule]) is None


@pytest.mark.parametrize("rule", OTHER)
def test_a_rule_of_which_one_field_does_not_match_does_neither(rule: Mapping[str, Any]) -> None:
    assert asked(deny=[rule]) is None
    assert asked(allow=[rule]) is Reason.NOT_ALLOW_LISTED


def test_deny_wins_over_allow_and_one_allow_rule_of_several_is_enough() -> None:
    assert asked() is None
    assert asked(allow=[{"namespaces": ["shop"]}], deny=[{"services": ["shop/cart"]}]) is Reason.DENY_LISTED
    assert asked(allow=[{"namespaces": ["bank"]}, {"pools": ["general"]}]) is None


def test_a_node_in_no_pool_is_matched_by_a_star_only() -> None:
    assert asked(pool=None, allow=[{"pools": ["general"]}]) is Reason.NOT_ALLOW_LISTED
    assert asked(pool=None, allow=[{"pools": ["*"]}]) is None


def test_a_bare_pod_stands_for_its_service() -> None:
    bare = a_pod_of(owner="")
    assert asked(bare, deny=[{"services": ["shop/*"]}]) is Reason.DENY_LISTED
    assert asked(bare, deny=[{"services": ["shop/cart"]}]) is None


def test_the_refusal_says_which_rule_and_what_it_says() -> None:
    in_pool, of_services = {"pools": ["batch"]}, {"services": ["shop/*", "bank/*"]}
    front = {"selector": {"matchLabels": {"tier": "front"}}}
    lists = Lists.model_validate({"deny": [in_pool, {**of_services, **front}]})
    refusal = refuses(a_pod_of(), cluster="east", pool="general", lists=lists)
    assert refusal is not None
    assert refusal.message == "on a deny list: deny[1], services shop/*, bank/* and its selector"
    allow = Lists.model_validate({"allow": [in_pool]})
    refusal = refuses(a_pod_of(), cluster="east", pool="general", lists=allow)
    assert refusal is not None
    assert refusal.message == "on no allow list: none of the 1 allow rules matches shop/cart-7"


@pytest.mark.parametrize("rule", [{}, {"selector": {}}, {"selector": None}])
def test_a_rule_that_says_nothing_is_refused(rule: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected a rule with at least one field"):
        ListRule.model_validate(rule)


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"services": ["cart"]}, "services"),
        ({"services": ["*cart"]}, "services"),
        ({"services": []}, "services"),
        ({"clusters": []}, "clusters"),
        ({"nodes": [""]}, "nodes"),
        ({"namespace": ["shop"]}, "namespace"),
        ({"namespaces": "shop"}, "namespaces"),
    ],
)
def test_a_field_that_could_match_nothing_is_refused(rule: Mapping[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ListRule.model_validate(rule)
    assert [each["loc"][0] for each in caught.value.errors()] == [field]
