"""Service levels: where a pod's level comes from, and that an unknown one keeps it where it is."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.constraints.pods.levels import NO_LEVEL, cost_of, level_of
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.levels import LEVEL_KEY, ServiceLevels
from rebalancer.policy.schema.types import FieldError
from tests.builders import a_node, a_pod, cluster

LEVELS: Mapping[str, Any] = {
    "services": {"gold": ["shop/cart", "bank/*"], "silver": ["shop/*"]},
    "priorityClasses": {"batch-low": "bronze", "core": "frozen"},
    "default": "silver",
    "levels": [
        {"name": "gold", "cost": 10, "windows": [{"kind": "Allow", "schedule": "0 22 * * *", "duration": "8h"}]},
        {"name": "silver", "limits": {"evictions": [{"max": "10%", "per": "1h", "atLeast": 1}], "spacing": "1m"}},
        {"name": "bronze", "cost": 0},
        {"name": "frozen", "evict": False},
    ],
}


def levels_with(**fields: Any) -> ServiceLevels:
    return ServiceLevels.model_validate({**LEVELS, **fields})


def a_pod_of(
    owner: str = "web", namespace: str = "blog", annotation: str | None = None, label: str | None = None, cls: str = ""
) -> Pod:
    pod = a_pod(
        "p-0",
        "n1",
        namespace=namespace,
        owner=owner,
        labels={} if label is None else {LEVEL_KEY: label},
        template={"annotations": {} if annotation is None else {LEVEL_KEY: annotation}, "priorityClass": cls},
    )
    made = cluster([a_node("n1")], [pod])
    return made.pod(0)


def level(pod: Pod, levels: ServiceLevels | None = None) -> str | Reason:
    found = level_of(pod, levels or levels_with())
    return found.code if isinstance(found, Refusal) else found


def test_annotation_label_services_priority_class_and_default_count_in_this_order() -> None:
    cart: dict[str, Any] = {"namespace": "shop", "owner": "cart"}
    assert level(a_pod_of(**cart, annotation="bronze", label="silver", cls="core")) == "bronze"
    assert level(a_pod_of(**cart, label="silver", cls="core")) == "silver"
    assert level(a_pod_of(**cart, cls="core")) == "gold"
    assert level(a_pod_of(cls="batch-low")) == "bronze"
    assert level(a_pod_of(cls="another")) == "silver"
    assert level(a_pod_of()) == "silver"


def test_of_two_levels_whose_globs_match_the_first_in_the_file_counts() -> None:
    assert level(a_pod_of("cart", "shop")) == "gold"
    assert level(a_pod_of("checkout", "shop")) == "silver"
    turned = levels_with(services={"silver": ["shop/*"], "gold": ["shop/cart"]})
    assert level(a_pod_of("cart", "shop"), turned) == "silver"


def test_an_unknown_level_evicts_nothing() -> None:
    assert level(a_pod_of(label="platinum")) is Reason.UNKNOWN_LEVEL
    assert level(a_pod_of(annotation="", label="gold")) is Reason.UNKNOWN_LEVEL
    assert level(a_pod_of(annotation="Gold")) is Reason.UNKNOWN_LEVEL
    refusal = level_of(a_pod_of(label="platinum"), levels_with())
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith(
        "label rebalancer.dev/level is 'platinum', levels are: gold, silver, bronze, frozen"
    )


def test_a_level_that_is_never_moved_refuses_and_other_keys_can_be_stated() -> None:
    assert level(a_pod_of(cls="core")) is Reason.LEVEL_FORBIDS
    assert level(a_pod_of(label="frozen")) is Reason.LEVEL_FORBIDS
    levels = levels_with(annotation=None, label="tier")
    assert level(a_pod_of(annotation="bronze", label="platinum"), levels) == "silver"


def test_without_levels_a_pod_has_none_unless_it_names_one() -> None:
    assert level(a_pod_of(), ServiceLevels()) == NO_LEVEL
    assert level(a_pod_of(label="gold"), ServiceLevels()) is Reason.UNKNOWN_LEVEL
    assert cost_of(NO_LEVEL, ServiceLevels()) == 1.0


def test_a_level_has_a_cost_limits_and_windows() -> None:
    levels = levels_with()
    assert [cost_of(each.name, levels) for each in levels.levels] == [10.0, 1.0, 0.0, 1.0]
    gold, silver = levels.levels[:2]
    assert gold.windows[0].schedule == "0 22 * * *"
    assert silver.limits.spacing == 60.0
    assert hash(silver)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"default": None}, "default"),
        ({"default": "platinum"}, "default"),
        ({"services": {"platinum": ["shop/*"]}}, "services"),
        ({"services": {"gold": ["cart"]}}, "services"),
        ({"priorityClasses": {"core": "platinum"}}, "priorityClasses"),
        ({"levels": []}, "default"),
        ({"levels": [{"name": "silver"}, {"name": "silver"}]}, "levels"),
        ({"levels": [{"name": "a/b"}]}, "levels"),
        ({"levels": [{"name": "silver", "cost": -1}]}, "levels"),
        ({"levels": [{"name": "silver", "cost": float("inf")}]}, "levels"),
        ({"levels": [{"name": "silver", "evict": "false"}]}, "levels"),
        ({"annotation": "example.com/level"}, "annotation"),
    ],
)
def test_what_can_not_be_meant_is_refused_at_its_field(fields: Mapping[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        levels_with(**fields)
    [error] = caught.value.errors()
    cause = error.get("ctx", {}).get("error")
    assert (cause.way[0] if isinstance(cause, FieldError) else error["loc"][0]) == where
