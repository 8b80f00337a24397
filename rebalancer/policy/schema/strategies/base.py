"""What the strategies of the policy file share: the arguments that select pods, and what a strategy declares."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from rebalancer.policy.schema.types import (
    TRIGGERS,
    AsTuple,
    Duration,
    FieldError,
    Globs,
    Mode,
    Section,
    Selector,
    TriggerName,
    at_least,
)

NAME, ARGS = Field(description="Name of the strategy."), Field(description="Arguments of the strategy.")


class Namespaces(Section):
    """Globs; `exclude` wins. `guards.namespaces` applies as well."""

    include: Globs = ("*",)
    """Namespaces that the strategy selects pods from."""
    exclude: Globs = ()
    """Namespaces that it ignores."""


class PodArgs(Section):
    """Which pods a strategy may select. Counts, such as a topology spread, still include all pods."""

    namespaces: Namespaces = Namespaces()
    """Filter by namespace."""
    label_selector: Selector = Selector()
    """Filter by pod labels."""


class Need(StrEnum):
    """Data that a strategy receives only if it declares the need."""

    DAYS = "days"
    """`StrategyView.days`: services' usual days, from the forecasts."""
    CONTENTION = "contention"
    """`Usage.contention`: how long tasks wait for CPU; Prometheus only."""


class StrategyBase(Section):
    """Base of all strategies. Upper-case class attributes declare what a strategy needs and does."""

    MODULE: ClassVar[str] = ""
    """The module in `rebalancer.strategies` with its `find`."""
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    CORDONS: ClassVar[bool] = False
    """Whether it may cordon nodes, which requires the permission to patch them."""
    BALANCE: ClassVar[Literal["Spread", "Pack"] | None] = None
    """Whether it spreads load over nodes or packs it onto fewer."""

    pools: Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Names of its pools. Default: all."""
    interval: Annotated[Duration, at_least(10)] = 120.0
    """Interval of its cycles for each pool, with a jitter of a tenth."""
    triggers: Annotated[tuple[TriggerName, ...], AsTuple, Field(min_length=1)] = TRIGGERS
    """What starts its cycles: the timer at its interval, alerts by `alerts.rules`, and predicted peaks. `rebalancer
    trigger` and `run --once` always do."""
    mode: Mode = "Act"
    """The mode of its evictions."""

    if TYPE_CHECKING:  # every strategy declares both, with types of its own
        name: str
        args: Any

    @property
    def period(self) -> float:
        """Seconds from one cycle by the timer to the next, at most; infinite where the timer doesn't start it."""
        return self.interval if "Periodic" in self.triggers else float("inf")

    @property
    def by_cpu(self) -> bool:
        """Whether it finds nodes that are hot by real CPU."""
        return False

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"] | None:
        """The thresholds its pools must have."""
        return None

    @property
    def memory_seconds(self) -> float:
        """How far back it needs recent evictions."""
        return 0.0

    @property
    def ordered_pools(self) -> tuple[str, ...]:
        """The pools that its arguments name, the best first."""
        return ()

    @property
    def past_seconds(self) -> float:
        """How far back it reads what pods requested on nodes, as earlier cycles saw it; 0 = it reads no past."""
        return 0.0

    def repeats(self, other: "StrategyBase") -> bool:
        """Whether both do the same in a common pool. Pods can be selected in several ways, nodes cooled or drained
        in one only."""
        if self.by_cpu or self.pool_thresholds is not None:
            return (type(self), self.pool_thresholds) == (type(other), other.pool_thresholds)
        when = {"pools", "interval", "triggers", "mode"}
        return self.model_dump(exclude=when) == other.model_dump(exclude=when)


def check_order(index: int, strategies: Sequence[StrategyBase], with_thresholds: Collection[str]) -> None:
    """Raises FieldError where the strategy at this index can't keep the order of its pools. `with_thresholds`: names of
    the pools that have some."""
    strategy, at = strategies[index], ("strategies", index, "args", "order")
    order = strategy.ordered_pools
    if bare := [name for name in order[:-1] if name not in with_thresholds]:
        raise FieldError(at, f"expected pool {bare[0]} to have thresholds, which hold where pods return")
    if strategy.pools is not None and (left := [name for name in order[1:] if name not in strategy.pools]):
        raise FieldError(("strategies", index, "pools"), f"expected {left[0]}: pods return from its nodes")
    for other in strategies[:index]:
        if both := [name for name in order if name in other.ordered_pools]:
            raise FieldError(at, f"expected each pool in one order, got {both[0]} in two")
