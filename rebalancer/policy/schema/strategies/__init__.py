"""The `strategies` section of the policy file: the strategies in use and their arguments.

Names and arguments are those of kubernetes-sigs/descheduler where they mean the same.
"""

import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Discriminator, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from rebalancer.policy.schema.strategies.base import StrategyBase
from rebalancer.policy.schema.strategies.constraints import CONSTRAINTS
from rebalancer.policy.schema.strategies.lifecycle import LIFECYCLE
from rebalancer.policy.schema.strategies.utilization import OF_NODES, OF_PODS
from rebalancer.policy.schema.types import FieldError

_PLUGIN_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z][A-Za-z0-9]*$"


def _plugin_name(value: str) -> str:
    if re.fullmatch(_PLUGIN_NAME, value) is None:
        # who writes no domain means one of ours
        raise PydanticCustomError("unknown_name", "expected the name of a strategy", {"known": STRATEGY_NAMES})
    return value


def _plain(value: Any, way: tuple[str | int, ...] = ()) -> Any:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        _plain(each, (*way, key))
    if value is not None and not isinstance(value, str | int | float | dict | list):  # YAML knows dates, sets and bytes
        raise FieldError(way, f"expected what JSON can carry, got {type(value).__name__} (quotes would make it text)")
    return value


class PluginStrategy(StrategyBase):
    """A strategy from another package, found by its entry point. Its module declares what it needs and does."""

    name: Annotated[str, AfterValidator(_plugin_name), WithJsonSchema({"type": "string", "pattern": _PLUGIN_NAME})]
    """Domain and name, such as example.com/QuietNodes."""
    args: Annotated[dict[str, Any], AfterValidator(_plain), WithJsonSchema({"type": "object"})] = {}
    """Arguments, validated by the strategy."""


BUILT_IN = (*OF_NODES, *CONSTRAINTS, *LIFECYCLE, *OF_PODS)
STRATEGY_NAMES = tuple(each.__name__ for each in BUILT_IN)
PLUGIN = "plugin"


def _which(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if name in STRATEGY_NAMES else PLUGIN


if TYPE_CHECKING:
    Strategy = StrategyBase
else:
    _TAGGED = [Annotated[each, Tag(each.__name__)] for each in BUILT_IN]
    Strategy = Annotated[reduce(or_, [*_TAGGED, Annotated[PluginStrategy, Tag(PLUGIN)]]), Discriminator(_which)]
"""One entry of `strategies`."""
