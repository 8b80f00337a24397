"""The report as a JSON document."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rebalancer.effect.cluster import PoolDay
from rebalancer.effect.rates import RateLine, TrendPoint
from rebalancer.effect.report import Report
from rebalancer.model.effect import DIMENSIONS, Rate
from rebalancer.model.history import DAY_SECONDS

SCHEMA_VERSION: Final = "1"


def to_json(report: Report) -> dict[str, Any]:
    """The document; null = not known, or a rate of nothing.

        {schemaVersion, since, until, by: [cluster|pool|strategy|trigger], total: LINE|null, lines: [LINE],
         reasons: [{key, rate: RATE, sentence, example}],
         trend: [{from, days, ...LINE}],
         pools: [POOL], overDays: [{day, ...POOL}],
         hottest: [NODE], useless: [NODE], services: [{service, evictions, nodes, triggers, helped: RATE}],
         account: {beforeMillicores, afterMillicores, evicted, departed, arrived, returned, remainingChange,
                   residual}|null,
         accuracy: [{pool, forecasts, mae, coverage, hotRecall, hotPrecision, peakHourError, drift}],
         comparison: {matchedDays, enough, before, after, change: INTERVAL|null, spread, untouched, net, moved, verdict}
                     |null,
         notes: [sentence]}
        RATE = {part, whole, share}
        LINE = {cluster, pool, strategy, trigger, discovery: RATE, eviction: RATE, effectiveness: RATE, hot, found,
                acted, cooled, assessed, evictions, reliefPlannedCores, reliefMeasuredCores, hotNodeMinutes, prevented,
                falseAlarms, tooLate, reasons: {key: count}}
        POOL = {pool, hours, nodes, hotNodes, hotNodeMinutes, spread, highestShare, cpuShare, cpuChange, freeByUsage,
                freeByRequests, warmLandings: RATE}
        NODE = {node, pool, episodes, hotMinutes, evictions, useless}
        INTERVAL = {median, low, high, confidence}

    Times are RFC 3339, days are dates in UTC. Of a line, what it isn't grouped by is null; an empty pool is of nodes in
    none, an empty strategy and trigger of episodes that were not found. Elsewhere a `pool` of null stands for all.
    """
    document = {name: _value(getattr(report, field)) for field, name in _named(report)}
    times = {"since": _instant(report.since), "until": _instant(report.until)}
    return {"schemaVersion": SCHEMA_VERSION, **document, **times}


def _value(value: Any) -> Any:
    match value:
        case Rate():
            return {"part": value.part, "whole": value.whole, "share": value.share}
        case RateLine():
            return _line(value)
        case TrendPoint():
            return {"from": _date(value.day), "days": value.days, **_line(value.line)}
        case PoolDay():
            return {"day": _date(value.day), **_value(value.summary)}
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _value(each) for key, each in value.items()}
        case tuple() | list():
            return [_value(each) for each in value]
        case _ if is_dataclass(value):
            return {name: _value(getattr(value, field)) for field, name in _named(value)}
        case _:
            return value


def _line(line: RateLine) -> dict[str, Any]:
    counts = line.counts
    return {
        **{name: line.key.get(name) for name in DIMENSIONS},
        "discovery": _value(line.discovery),
        "eviction": _value(line.eviction),
        "effectiveness": _value(line.effectiveness),
        "hot": counts.hot,
        "found": counts.discovered,
        "acted": counts.evicted_from,
        "cooled": counts.cooled,
        "assessed": counts.assessed,
        "evictions": counts.evictions,
        "reliefPlannedCores": _value(counts.relief_planned),
        "reliefMeasuredCores": _value(counts.relief_measured),
        "hotNodeMinutes": _value(counts.hot_node_minutes),
        "prevented": counts.prevented,
        "falseAlarms": counts.false_alarms,
        "tooLate": counts.too_late,
        "reasons": dict(counts.reasons or {}),
    }


def _named(record: Any) -> list[tuple[str, str]]:
    """(field, its name in the document)"""
    return [(each.name, _camel(each.name)) for each in fields(record)]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date().isoformat()
