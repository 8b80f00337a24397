"""Settings that are named for nodes that stay hot."""

import typing

import pytest
from pydantic import BaseModel

from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy


def sections(annotation: object) -> list[type[BaseModel]]:
    """The models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for each in typing.get_args(annotation) for found in sections(each)]


def exists(model: type[BaseModel], path: list[str]) -> bool:
    for field in model.model_fields.values():
        if field.alias == path[0]:
            return len(path) == 1 or any(exists(each, path[1:]) for each in sections(field.annotation))
    return False


@pytest.mark.parametrize("key", sorted({code.setting for code in Reason if code.setting}))
def test_every_setting_is_a_key_of_the_policy(key: str) -> None:
    assert exists(RebalancerPolicy, key.split("."))


def test_a_key_that_the_policy_does_not_have_is_found_out() -> None:
    assert not exists(RebalancerPolicy, ["guards", "minimumAge"])
