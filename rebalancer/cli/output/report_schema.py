"""The JSON Schema of `rebalancer report -o json`, as docs/reference/report.schema.json ships it.

Fields are only ever added, so others than these are allowed.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rebalancer.effect.document import SCHEMA_VERSION
from rebalancer.model.effect import Dimension

SCHEMA_ID = f"https://rebalancer.dev/schemas/report/v{SCHEMA_VERSION}.json"

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(ge=0)]
Day = Annotated[str, Field(json_schema_extra={"format": "date"})]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
REASON_KEY = "^(discovery|eviction|effect)/"


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, use_attribute_docstrings=True)


class Rate(_Part):
    """`part` of `whole`."""

    part: Count
    whole: Count
    share: Share | None
    """null: of nothing."""


class Line(_Part):
    """The rates of one group of episodes, and what they are made of."""

    cluster: str | None
    """null, here and in the next three: the line is not split by it."""
    pool: str | None
    """Empty: nodes in no pool."""
    strategy: str | None
    """Empty: episodes that were not found."""
    trigger: str | None
    """Empty: episodes that were not found."""
    discovery: Rate
    """Hot nodes that were found, of those hot by the standard."""
    eviction: Rate
    """Found nodes that at least one pod was evicted from, of the found."""
    effectiveness: Rate
    """Nodes at or under target after settling, of those evicted from that could be assessed."""
    hot: Count
    found: Count
    acted: Count
    cooled: Count
    assessed: Count
    evictions: Count
    """Pods."""
    relief_planned_cores: float | None
    relief_measured_cores: float | None
    """Of the same nodes as what was planned."""
    hot_node_minutes: Part | None
    prevented: Count
    """Nodes relieved ahead of a peak that would have become hot,"""
    false_alarms: Count
    """that would not have,"""
    too_late: Count
    """and that became hot nevertheless."""
    reasons: Annotated[dict[str, Count], Field(json_schema_extra={"propertyNames": {"pattern": REASON_KEY}})]


class Reason(_Part):
    """Why something did not come to what it should have."""

    key: Annotated[str, Field(pattern=REASON_KEY)]
    rate: Rate
    """Of the episodes missed, of the found ones that nothing left, of the assessments."""
    sentence: str
    example: str
    """What was written down of the newest; empty when it isn't kept any more."""


class TrendLine(Line):
    """A day, or a week from Monday on."""

    from_: Day = Field(alias="from")
    days: Literal[1, 7]


class Pool(_Part):
    """Some hours of a pool; means over them."""

    pool: str | None
    """null: all of them."""
    hours: Count
    """Of which something is known."""
    nodes: Part | None
    hot_nodes: Part | None
    """At a time."""
    hot_node_minutes: Part
    spread: Part | None
    """Standard deviation of the nodes' shares."""
    highest_share: Part | None
    cpu_share: Part | None
    cpu_change: float | None
    """Against the same hours last week, as a part of then."""
    free_by_usage: float | None
    free_by_requests: float | None
    warm_landings: Rate
    """New pods that were placed on nodes over target, of all new pods."""


class PoolDay(Pool):
    """One UTC day of a pool."""

    day: Day


class Node(_Part):
    """A node."""

    node: str
    pool: str
    episodes: Count
    hot_minutes: Part
    evictions: Count
    useless: Count
    """Evictions after which it did not cool."""


class Service(_Part):
    """A service whose pods were moved."""

    service: str
    evictions: Count
    nodes: Count
    """That they left."""
    triggers: dict[str, Count]
    helped: Rate
    """Evictions after which the node had cooled, of those that could be assessed."""


class ChangeBreakdown(_Part):
    """afterMillicores - beforeMillicores = - evicted - departed + arrived + returned + remainingChange + residual, all
    summed over the assessments after settling; null = not known."""

    before_millicores: float | None
    after_millicores: float | None
    evicted: float | None
    departed: float | None
    arrived: float | None
    returned: float | None
    remaining_change: float | None
    residual: float | None


class Accuracy(_Part):
    """How good the forecasts of a pool were; null = too few to tell. Errors are shares of a node's capacity."""

    pool: str | None
    """null: of all."""
    forecasts: Count
    mae: Part | None
    coverage: Share | None
    hot_recall: Share | None
    hot_precision: Share | None
    peak_hour_error: Part | None
    """Hours, in the median."""
    drift: str
    """A sentence when they are getting worse, else empty."""


class Interval(_Part):
    """The median of paired differences, and where it lies with this confidence."""

    median: float
    low: float
    high: float
    confidence: Share


class Comparison(_Part):
    """This time against the one before; hot minutes are per node and day, differences are after - before."""

    matched_days: Count
    enough: bool
    before: Part | None
    after: Part | None
    change: Interval | None
    spread: Interval | None
    """Change of the nodes' standard deviation."""
    untouched: Interval | None
    """Change of the pools that were left alone."""
    net: Interval | None
    """Change beyond that of the pools that were left alone."""
    moved: list[str]
    """What else changed, in sentences."""
    verdict: str


class ReportDocument(_Part):
    """What `rebalancer report -o json` prints."""

    schema_version: Literal["1"]
    clusters: list[str]
    since: Time
    until: Time
    """Not included."""
    by: list[Dimension]
    total: Line | None
    """null: nothing is known of these days."""
    lines: list[Line]
    reasons: list[Reason]
    trend: list[TrendLine]
    pools: list[Pool]
    over_days: list[PoolDay]
    hottest: list[Node]
    """With the most hot minutes."""
    useless: list[Node]
    """With the most evictions without effect."""
    services: list[Service]
    """Most moved first."""
    account: ChangeBreakdown | None
    accuracy: list[Accuracy]
    comparison: Comparison | None
    """null: no hot node was relieved in this time."""
    notes: list[str]
    """What makes the figures doubtful."""


def report_schema() -> dict[str, Any]:
    """Draft 2020-12, with every field's description."""
    schema = ReportDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
