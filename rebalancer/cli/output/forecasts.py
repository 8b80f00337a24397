"""Node forecasts as a JSON document and as tables."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.json import at
from rebalancer.cli.output.tables import UNKNOWN, plain_table, print_notes
from rebalancer.cli.output.times import local, moment, until, zone
from rebalancer.forecast import Forecasts
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.forecasting.node_forecasts import PooledForecast
from rebalancer.model.notation.figures import millicores, percent
from rebalancer.model.notation.resource_names import MEMORY

OfResources = Mapping[str, tuple[Sequence[PooledForecast], Forecasts]]
"""Forecasts of each resource besides CPU."""


def forecast_document(
    found: Sequence[PooledForecast], forecasts: Forecasts, of_resources: OfResources, leaks: Sequence[MemoryLeak]
) -> dict[str, Any]:
    """`forecast -o json`. Shares are 0..1, times UTC; null = not known."""
    return {
        "nodes": [_node(each) for each in found],
        "pools": [
            {"pool": each.pool, "shortLivedPeakMillicores": round(each.short_lived_peak_millicores, 1)}
            for each in forecasts.pools
        ],
        "resources": [
            {
                "resource": name,
                "unit": unit_of(name),
                "nodes": [_of_resource(each) for each in some],
                "notes": rest.notes,
            }
            for name, (some, rest) in of_resources.items()
        ],
        "memoryLeaks": [_leak(each) for each in leaks],
        "notes": forecasts.notes,
    }


def _leak(each: MemoryLeak) -> dict[str, Any]:
    return {
        "pod": each.pod,
        "service": each.service or None,
        "node": each.node,
        "memoryMebibytes": round(each.mebibytes, 1),
        "mebibytesPerHour": round(each.mebibytes_per_hour, 1),
        "since": at(each.since),
        "limitMebibytes": None if each.limit_mebibytes is None else round(each.limit_mebibytes, 1),
        "killAt": at(each.kill_at),
        "killFrom": at(each.kill_from),
        "killUntil": at(each.kill_until),
        "endedBefore": each.ended_before,
    }


def unit_of(resource: str) -> str:
    """Unit of the amounts in forecasts of a resource besides CPU."""
    return "MiB" if resource == MEMORY else "thousandths"


def _of_resource(each: PooledForecast) -> dict[str, Any]:
    one = each.forecast
    return {
        "node": one.node,
        "pool": each.pool or None,
        "high": each.high,
        "hot": each.hot,
        "peakShare": round(one.peak_share, 6),
        "plannedShare": round(each.planned_share, 6),
        "peak": round(one.peak_millicores, 1),
        "peakAt": at(one.peak_at),
        "peakFrom": at(one.peak_from),
        "peakUntil": at(one.peak_until),
        "margin": round(one.margin, 1),
        "confidence": round(one.confidence, 3),
        "daysUsed": one.days_used,
    }


def _node(each: PooledForecast) -> dict[str, Any]:
    one, parts = each.forecast, each.forecast.parts
    days = zip(parts.day_starts, parts.daily_p95.tolist(), parts.weights.tolist(), strict=True)
    return {
        "node": one.node,
        "pool": each.pool or None,
        "high": each.high,
        "hot": each.hot,
        "peakShare": round(one.peak_share, 6),
        "plannedShare": round(each.planned_share, 6),
        "peakMillicores": round(one.peak_millicores, 1),
        "peakAt": at(one.peak_at),
        "peakFrom": at(one.peak_from),
        "peakUntil": at(one.peak_until),
        "shortPeakMillicores": round(one.short_peak_millicores, 1),
        "marginMillicores": round(one.margin, 1),
        "confidence": round(one.confidence, 3),
        "daysUsed": one.days_used,
        "trajectoryMillicores": [round(float(value), 1) for value in one.profile],
        "components": {
            "days": [
                {"from": at(start), "p95Millicores": round(p95, 1), "weight": round(weight, 6)}
                for start, p95, weight in days
            ],
            "weightedP95Millicores": round(parts.weighted_p95, 1),
            "levelMillicores": round(parts.level, 1),
            "eventFactor": round(parts.event_factor, 6),
            "events": parts.events,
            "observedShare": round(parts.own_share, 3),
        },
    }


def print_forecasts(
    console: Console,
    found: Sequence[PooledForecast],
    forecasts: Forecasts,
    of_resources: OfResources,
    leaks: Sequence[MemoryLeak],
    *,
    explain: bool,
) -> None:
    """The peak of each node; with `explain` also its components, of CPU. Then the memory leaks, if there are any."""
    _print_peaks(console, "The next 24 hours", found)
    for name, (some, _) in of_resources.items():
        if any(each.forecast.days_used for each in some):
            _print_peaks(console, f"The next 24 hours: {name}", some)
    if explain:
        for each in found:
            _print_components(console, each)
    if leaks:
        _print_leaks(console, leaks)
    print_notes(
        console,
        (*forecasts.notes, *(f"{name}: {note}" for name, (_, rest) in of_resources.items() for note in rest.notes)),
    )


def _print_peaks(console: Console, title: str, found: Sequence[PooledForecast]) -> None:
    columns = ("NODE", "POOL", "PEAK", "IN PLANS", "HIGH", f"AT ({zone()})", "BETWEEN", "CONFIDENCE", "DAYS", "")
    table = plain_table(title, *columns, wide=("IN PLANS", "DAYS"))
    for each in found:
        one = each.forecast
        table.add_row(
            one.node,
            each.pool or UNKNOWN,
            percent(one.peak_share),
            percent(each.planned_share),
            percent(each.high),
            _weekday(one.peak_at),
            _clock(one.peak_from, one.peak_until),
            percent(one.confidence, 0),
            str(one.days_used),
            Text("will be hot", style="bold red") if each.hot_in_plans else "may be hot" if each.hot else "",
        )
    console.print(table)


def _print_leaks(console: Console, leaks: Sequence[MemoryLeak]) -> None:
    columns = ("POD", "NODE", "MEMORY", "AN HOUR", "LIMIT", "OOM KILL", "EARLIEST", "LATEST", "BEFORE")
    wide = ("EARLIEST", "LATEST", "BEFORE")
    table = plain_table("Memory leaks", *columns, right=("MEMORY", "AN HOUR", "LIMIT"), wide=wide)
    for each in leaks:
        limit = "of the node" if each.limit_mebibytes is None else _mebibytes(each.limit_mebibytes)
        latest = UNKNOWN if math.isinf(each.kill_until) else moment(each.kill_until)
        table.add_row(
            each.pod,
            each.node,
            _mebibytes(each.mebibytes),
            f"+{_mebibytes(each.mebibytes_per_hour)}",
            limit,
            until(each.kill_at),
            moment(each.kill_from),
            latest,
            str(each.ended_before or UNKNOWN),
        )
    console.print(table)


def _mebibytes(amount: float) -> str:
    return f"{amount:.0f} MiB"


def _print_components(console: Console, each: PooledForecast) -> None:
    one, parts = each.forecast, each.forecast.parts
    table = plain_table(f"{one.node}: daily P95 and its weight", "24 HOURS FROM", "P95", "WEIGHT", "P95 x WEIGHT")
    columns = (parts.daily_p95.tolist(), parts.weights.tolist(), parts.products.tolist())
    for start, p95, weight, product in zip(parts.day_starts, *columns, strict=True):
        weighted = UNKNOWN if math.isnan(weight) else f"{weight:.3f}"
        table.add_row(_weekday(start), millicores(p95), weighted, millicores(product))
    console.print(table)
    events = f" x {parts.event_factor:g} for {', '.join(parts.events)}" if parts.events else ""
    console.print(
        f"sum {millicores(parts.weighted_p95)}; level {millicores(parts.level)}{events}; "
        f"margin {millicores(one.margin)}; peak {millicores(one.peak_millicores)}, "
        f"{parts.own_share:.0%} of it observed on the pods themselves\n",
        highlight=False,
    )


def _weekday(seconds: float) -> str:
    return f"{local(seconds):%a %H:%M}" if math.isfinite(seconds) else UNKNOWN


def _clock(begin: float, end: float) -> str:
    """`09:10-11:05`"""
    times = [f"{local(each):%H:%M}" for each in (begin, end) if math.isfinite(each)]
    return "-".join(times) or UNKNOWN
