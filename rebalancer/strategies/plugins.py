"""Strategies of others, by entry points of the group `rebalancer.strategies`.

An entry point's name is the strategy's name in the policy (`domain/Name`); what it points to, a module or an object,
has a function `find(view) -> Findings` and may have a pydantic model `Args`. Only those that a policy names are
imported. What they answer is checked before anybody acts on it, and what goes wrong in one of them is a note: neither
the cycle nor another strategy ends by it.
"""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.strategies import PluginStrategy, Strategy
from rebalancer.strategies import STRATEGIES, Find
from rebalancer.strategies.plugin_findings import check_findings
from rebalancer.strategies.view import Findings, StrategyView

GROUP = "rebalancer.strategies"
LOG = logging.getLogger("rebalancer")

LONGEST_ERROR = 300
"""What others write into an exception is cut to so many characters."""


class NoArgs(BaseModel):
    """The arguments of a strategy that takes none."""

    model_config = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an entry point gave us."""

    find: Callable[[StrategyView], Any]
    args: type[BaseModel]


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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module of others may raise anything
        raise ConfigError(f"{name} ({points[0].value}) can't be loaded: {_said(error)}") from None
    find, args = getattr(loaded, "find", None), getattr(loaded, "Args", NoArgs)
    if not callable(find):
        raise ConfigError(f"{name} ({points[0].value}): expected a function find(view)")
    if not (isinstance(args, type) and issubclass(args, BaseModel)):
        raise ConfigError(f"{name} ({points[0].value}): expected Args to be a pydantic model")
    return Plugin(find=find, args=args)


def args_of(name: str) -> type[BaseModel]:
    """What checks the arguments of the strategy of that name. Raises ConfigError as `plugin` does."""
    return plugin(name).args


def strategy_for(strategy: Strategy) -> Find:
    """The function that finds for an entry of the policy, ours or somebody else's.

    Raises ConfigError when it isn't installed; its arguments were checked when the policy was read.
    """
    if not isinstance(strategy, PluginStrategy):
        return STRATEGIES[strategy.name]
    its = plugin(strategy.name)
    own = strategy.model_copy(update={"args": its.args.model_validate(strategy.args)})
    return lambda view: _find_safely(its, replace(view, strategy=own))


def _find_safely(its: Plugin, view: StrategyView) -> Findings:
    name = view.strategy.name
    try:
        found = its.find(_sealed(view))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the other strategies go on
        return _nothing(f"{name} failed and finds nothing: {_said(error)}")
    try:
        return check_findings(found, view)
    except ValueError as error:
        return _nothing(f"{name} finds nothing, its answer can't be used: {error}")
    except Exception as error:  # noqa: BLE001 - objects of others may fail when they are looked at
        return _nothing(f"{name} finds nothing, its answer can't be read: {_said(error)}")


def _nothing(note: str) -> Findings:
    LOG.warning("%s", note)
    return Findings(findings=(), notes=(note,))


def _said(error: BaseException) -> str:
    """The error in one line, with the place where it happened."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")[:LONGEST_ERROR]
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{text} ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})" if at is not None else text


def _sealed(value: Any) -> Any:
    """The same with columns that can't be written to: what one strategy spoils, all others would decide on."""
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
