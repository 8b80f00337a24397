"""The `forecast` section of the policy file: how the days are weighed, declared events, kinds of machines."""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from rebalancer.policy.schema.types import AsTuple, Duration, FieldError, NonEmpty, Percent, Section, at_least, at_most

HISTORY_DAYS = 8
"""How far back a forecast looks: today's weekday is in it once."""

PredictorName = Literal["combined", "weightedP95", "recentHours", "slotPercentile", "lastDay", "max"]


def _instant(value: Any) -> float:
    """RFC 3339 text, or what YAML made of it, to seconds since the epoch."""
    hint = "expected a time such as 2026-11-27T08:00:00Z"
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(hint) from None
    if not isinstance(read, datetime):
        raise ValueError(f"{hint}, not a date" if isinstance(read, date) else hint)
    # YAML takes the zone off a timestamp without quotes after it has turned it into UTC
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


Instant = Annotated[
    float,
    BeforeValidator(_instant),
    PlainSerializer(lambda at: datetime.fromtimestamp(at, UTC).isoformat()),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Event(Section):
    """A time of which you know that more will be used: a sale, a launch, a test of load."""

    name: NonEmpty
    """For people."""
    from_: Instant = Field(alias="from")
    """Its start, for example 2026-11-27T08:00:00Z; UTC without a zone."""
    to: Instant
    """Its end."""
    pools: Annotated[tuple[NonEmpty, ...], AsTuple] = ()
    """Names of the pools that it touches; all when empty."""
    uplift: Annotated[float, Field(gt=0, le=1000)]
    """By how many percent more CPU is used than without it. Past events are taken out of the history by the same."""

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers_too(cls, value: Any) -> Any:
        if isinstance(value, dict) and type(value.get("uplift")) is int:
            return {**value, "uplift": float(value["uplift"])}
        return value

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "Event":
        if self.to <= self.from_:
            raise FieldError("to", "expected to after from")
        return self


class Generation(Section):
    """How much one core of a machine does against another's, by a label of the node."""

    label: NonEmpty
    """For example node.kubernetes.io/instance-type."""
    factors: dict[str, Annotated[float, Field(gt=0, le=100)]]
    """Value of the label -> work that a core does, with 1.0 for the machine that you compare with."""


class DayWeights(Section):
    """How much each of the last days counts."""

    half_life: Annotated[Duration, at_least(3600)] = 86_400.0
    """A day that is older by this counts half."""
    weights: Annotated[tuple[Annotated[float, Field(ge=0)], ...], AsTuple] | None = None
    """Weights of the last days instead, the newest first; at most 8, those left out count nothing."""
    same_weekday: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    """The same weekday last week counts so many times as much."""

    @field_validator("weights")
    @classmethod
    def _some_count(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is not None and (len(weights) > HISTORY_DAYS or not sum(weights) > 0):
            raise ValueError(f"expected at most {HISTORY_DAYS} weights, not all 0")
        return weights


class PoolDayWeights(DayWeights):
    """The same for one pool."""

    pool: NonEmpty
    """Its name."""


class Forecast(Section):
    """Predicted peaks of nodes, from the last 8 days of the pods that are on them now."""

    mode: Literal["Off", "Observe", "Act"] = "Act"
    """Act: nodes are relieved ahead of their peaks, and nothing lands where a peak would pass the target. Observe:
    forecasts are made, kept and judged afterwards, and decide nothing. Off: no history is read."""
    interval: Annotated[Duration, at_least(60)] = 900.0
    """How often the daemon looks ahead."""
    horizon: Annotated[Duration, at_least(3600), at_most(86_400)] = 86_400.0
    """How far: at most 24h."""
    min_days: Annotated[int, Field(ge=1, le=HISTORY_DAYS)] = 3
    """A forecast that knows fewer days decides nothing."""
    lead_time: Annotated[Duration, at_least(0)] = 900.0
    """A node is relieved so long before it would become hot, besides what draining and starting pods take."""
    predictor: PredictorName = "combined"
    """How tomorrow's level is guessed; `rebalancer backtest` compares them."""
    coverage: Percent = 90.0
    """Of so many in 100 days the peak stays at or under the forecast: the margin is made for it from past errors."""
    day_weights: DayWeights = DayWeights()
    """How much each day counts."""
    pools: Annotated[tuple[PoolDayWeights, ...], AsTuple] = ()
    """Pools whose days count otherwise."""
    generation: Generation | None = None
    """For clusters of unlike machines."""
    events: Annotated[tuple[Event, ...], AsTuple] = ()
    """What you know of the days to come, and of those past."""

    @field_validator("pools")
    @classmethod
    def _each_pool_once(cls, pools: tuple[PoolDayWeights, ...]) -> tuple[PoolDayWeights, ...]:
        names = [each.pool for each in pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected each pool once, got {', '.join(twice)} more than once")
        return pools

    def day_weights_of(self, pool: str) -> DayWeights:
        """What holds for a pool."""
        return next((each for each in self.pools if each.pool == pool), self.day_weights)
