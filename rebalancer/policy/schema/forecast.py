"""The `forecast` section of the policy file: predictor, day weights, known events, calendar, machine generations."""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from rebalancer.policy.schema.types import (
    AsTuple,
    Duration,
    FieldError,
    Names,
    NonEmpty,
    Percent,
    Section,
    Switch,
    ZoneName,
    at_least,
    at_most,
)

HISTORY_DAYS = 8
"""Days of history behind a forecast; each weekday occurs, today's once in the past."""

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[str, ...] = get_args(Weekday)
"""In the order of `date.weekday`."""

PredictorName = Literal["combined", "weightedP95", "recentHours", "slotPercentile", "lastDay", "max"]


def _instant(value: Any) -> float:
    """RFC 3339 text, or the datetime that YAML parsed from it, to seconds since the epoch."""
    hint = "expected a time such as 2026-11-27T08:00:00Z"
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(hint) from None
    if not isinstance(read, datetime):
        raise ValueError(f"{hint}, not a date" if isinstance(read, date) else hint)
    # YAML converts an unquoted timestamp to UTC and drops the zone
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


Instant = Annotated[
    float,
    BeforeValidator(_instant),
    PlainSerializer(lambda at: datetime.fromtimestamp(at, UTC).isoformat()),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def _date(value: Any) -> date:
    """ISO 8601 text, or the date that YAML parsed from it."""
    hint = "expected a date such as 2026-12-25"
    try:
        read = date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(hint) from None
    if not isinstance(read, date) or isinstance(read, datetime):
        raise ValueError(hint)
    return read


Day = Annotated[
    date,
    BeforeValidator(_date),
    PlainSerializer(lambda day: day.isoformat()),
    WithJsonSchema({"type": "string", "format": "date"}),
]


class CalendarDay(Section):
    """A date on which load follows the course of another weekday: a holiday, a working Saturday."""

    date: Day
    """The date, for example 2026-12-25."""
    name: NonEmpty
    """Name in messages."""
    like: Weekday
    """The weekday that it goes like: `sunday` for a holiday."""
    pools: Names = ()
    """Names of the affected pools; empty: all."""
    time_zone: ZoneName = "UTC"
    """IANA time zone of the date, for example Europe/Berlin."""


class Event(Section):
    """A time with known extra load: a sale, a launch, a load test."""

    name: NonEmpty
    """Name in messages."""
    from_: Instant = Field(alias="from")
    """Start, for example 2026-11-27T08:00:00Z; UTC unless a zone is given."""
    to: Instant
    """End."""
    pools: Names = ()
    """Names of the affected pools; empty: all."""
    uplift: Annotated[float, Field(gt=0, le=1000)]
    """Extra CPU in percent of the usual. The history is corrected for past events by the same factor."""

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
    """Relative speed of a core, by a label of the node."""

    label: NonEmpty
    """Node label, for example node.kubernetes.io/instance-type."""
    factors: dict[str, Annotated[float, Field(gt=0, le=100)]]
    """Label value -> relative speed of a core; 1.0 for the reference machine."""


class DayWeights(Section):
    """Weight of each of the last days in a forecast."""

    half_life: Annotated[Duration, at_least(3600)] = 86_400.0
    """Age at which a day's weight has halved."""
    weights: Annotated[tuple[Annotated[float, Field(ge=0)], ...], AsTuple] | None = None
    """Explicit weights of the last days instead, newest first; at most 8, missing ones are 0."""
    same_weekday: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    """Factor on the weight of the same weekday last week."""

    @field_validator("weights")
    @classmethod
    def _some_count(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is not None and (len(weights) > HISTORY_DAYS or not sum(weights) > 0):
            raise ValueError(f"expected at most {HISTORY_DAYS} weights, not all 0")
        return weights


class PoolDayWeights(DayWeights):
    """Day weights of one pool."""

    pool: NonEmpty
    """Name of the pool."""


class Forecast(Section):
    """Predicted peaks of nodes, from the last 8 days of the pods that run on them now."""

    mode: Annotated[Literal["Off", "Observe", "Act"], Switch] = "Observe"
    """Act: nodes are relieved ahead of their peaks, and no target node may exceed its target at its peak. Observe:
    forecasts are made, stored and verified, but do not influence plans. Off: no history is read. What acting is worth
    stands in docs/forecast.md."""
    interval: Annotated[Duration, at_least(60)] = 900.0
    """Interval of forecast runs."""
    horizon: Annotated[Duration, at_least(3600), at_most(86_400)] = 86_400.0
    """How far ahead to forecast; at most 24h."""
    min_days: Annotated[int, Field(ge=1, le=HISTORY_DAYS)] = 3
    """A forecast from fewer days of history does not influence plans."""
    lead_time: Annotated[Duration, at_least(0)] = 900.0
    """How long before a predicted hot time a node is relieved, in addition to the time that evictions and pod starts
    take."""
    predictor: PredictorName = "combined"
    """Predictor of the next day's level; `rebalancer backtest` compares them."""
    coverage: Percent = 90.0
    """Percentage of days on which the peak must stay at or below the forecast; the margin follows from past errors."""
    day_weights: DayWeights = DayWeights()
    """Weight of each day."""
    pools: Annotated[tuple[PoolDayWeights, ...], AsTuple] = ()
    """Different weights for some pools."""
    generation: Generation | None = None
    """Machine generations, for clusters with nodes of different speed: in forecasts and landings the same work is more
    CPU on a slower machine."""
    events: Annotated[tuple[Event, ...], AsTuple] = ()
    """Known events, past and future."""
    calendar: Annotated[tuple[CalendarDay, ...], AsTuple] = ()
    """Dates that go like another weekday, such as holidays, past and future. Ordinary days are forecast without them;
    on such a date the newest day of the other weekday counts."""

    @field_validator("pools")
    @classmethod
    def _each_pool_once(cls, pools: tuple[PoolDayWeights, ...]) -> tuple[PoolDayWeights, ...]:
        names = [each.pool for each in pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected each pool once, got {', '.join(twice)} more than once")
        return pools

    @field_validator("calendar")
    @classmethod
    def _each_date_once(cls, calendar: tuple[CalendarDay, ...]) -> tuple[CalendarDay, ...]:
        for index, later in enumerate(calendar):
            for earlier in calendar[:index]:
                both = not earlier.pools or not later.pools or set(earlier.pools) & set(later.pools)
                if earlier.date == later.date and both:
                    raise ValueError(f"expected each date once for each pool, got {later.date} more than once")
        return calendar

    def day_weights_of(self, pool: str) -> DayWeights:
        """The day weights of a pool."""
        return next((each for each in self.pools if each.pool == pool), self.day_weights)
