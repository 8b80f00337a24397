"""Strategies from other packages, by entry points of the group `rebalancer.strategies`.

An entry point's name is the strategy's name in the policy (`domain/Name`). It points to a module or an object with a
function `find(view) -> Findings`, and optionally a pydantic model `Args`, `NEEDS` (names of the data it needs) and
`CORDONS` (False: it drains no node). Only strategies that a policy names are imported. Their findings are checked
before use. A failure in one of them is a note of the cycle; the cycle and the other strategies go on.
"""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
from pydantic import BaseModel

from rebalancer.model.errors import ConfigError
from rebalancer.model.parts import cause_of
from rebalancer.policy.schema.strategies import PluginStrategy
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.strategies.external.plugin_findings import check_findings
from rebalancer.strategies.interface.view import Findings, StrategyView

GROUP = "rebalancer.strategies"
LOG = logging.getLogger("rebalancer")


class NoArgs(BaseModel):
    """The arguments of a strategy that takes none."""

    model_config = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded entry point."""

    find: Callable[[StrategyView], Any]
    args: type[BaseModel]
    needs: frozenset[Need]
    cordons: bool


def installed() -> dict[str, list[EntryPoint]]:
    """Name -> entry points of that name; nothing is imported."""
    out: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        same = out.setdefault(point.name, [])
        if point.value not in [each.value for each in same]:  # a folder may stand on the path twice
            same.append(point)
    return out


@lru_cache
def plugin(name: str) -> Plugin:
    """The strategy of that name. Raises ConfigError when it isn't installed or can't be used."""
    have = installed()
    points = have.get(name, [])
    if not points:
        known = f"installed: {', '.join(have)}" if have else f"nothing is installed in the group {GROUP}"
        raise ConfigError(f"expected a strategy that is installed, got {name}; {known}")
    if len(points) > 1:
        raise ConfigError(f"expected one strategy {name}, installed are {', '.join(point.value for point in points)}")
    try:
        loaded = points[0].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a foreign module may raise anything
        raise ConfigError(f"{name} ({points[0].value}) can't be loaded: {cause_of(error)}") from None
    find, args = getattr(loaded, "find", None), getattr(loaded, "Args", NoArgs)
    if not callable(find):
        raise ConfigError(f"{name} ({points[0].value}): expected a function find(view)")
    if not (isinstance(args, type) and issubclass(args, BaseModel)):
        raise ConfigError(f"{name} ({points[0].value}): expected Args to be a pydantic model")
    try:
        wanted = frozenset(Need(each) for each in getattr(loaded, "NEEDS", ()))
    except (TypeError, ValueError):
        shown = ", ".join(Need)
        raise ConfigError(f"{name} ({points[0].value}): expected NEEDS to be a list of: {shown}") from None
    return Plugin(find=find, args=args, needs=wanted, cordons=bool(getattr(loaded, "CORDONS", True)))


def args_of(name: str) -> type[BaseModel]:
    """The model of the arguments of the strategy of that name. Raises ConfigError as `plugin` does."""
    return plugin(name).args


def find_safely(strategy: PluginStrategy, view: StrategyView) -> Findings:
    """What the plugin finds, checked; a note where it fails. Raises ConfigError when it isn't installed."""
    its = plugin(strategy.name)
    own = strategy.model_copy(update={"args": its.args.model_validate(strategy.args)})
    return _find_safely(its, replace(view, strategy=own))


def _find_safely(its: Plugin, view: StrategyView) -> Findings:
    name = view.strategy.name
    try:
        found = its.find(_sealed(view))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other strategies go on
        return _nothing(f"{name} failed and finds nothing: {cause_of(error)}")
    try:
        return check_findings(found, view)
    except ValueError as error:
        return _nothing(f"{name} finds nothing, its findings can't be used: {error}")
    except Exception as error:  # noqa: BLE001 - foreign objects may fail on any access
        return _nothing(f"{name} finds nothing, its findings can't be read: {cause_of(error)}")


def _nothing(note: str) -> Findings:
    LOG.warning("%s", note)
    return Findings(findings=(), notes=(note,), failed=note)


def _sealed(value: Any) -> Any:
    """A copy with read-only columns: all strategies share the data."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(_sealed(each) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    out = copy.copy(value)
    names = {each.name for each in fields(value)} | vars(value).keys() if hasattr(value, "__dict__") else None
    for name in names if names is not None else [each.name for each in fields(value)]:
        object.__setattr__(out, name, _sealed(getattr(value, name)))
    return out
