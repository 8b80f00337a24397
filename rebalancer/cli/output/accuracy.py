"""`rebalancer forecast --accuracy`: how good the forecasts of the last days were, and what acting on them came to."""

import math
import time
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from rebalancer.bootstrap.database import kept_records
from rebalancer.bootstrap.settings import Settings
from rebalancer.cli.common import Output, print_json, stdout_console
from rebalancer.cli.output.tables import plain_table
from rebalancer.forecast.accuracy import LEAST, LOOKS_BACK_SECONDS, Accuracy, Scores, accuracy
from rebalancer.model.errors import ConfigError
from rebalancer.model.forecasts import Verdict
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.types import parse_duration

SCHEMA_VERSION = "1"
ALL = "(all)"


def show_accuracy(policy: RebalancerPolicy, settings: Settings, *, since: str, output: Output) -> None:
    """Print it. Raises ConfigError for a `since` that is no duration or a database that can't be used, ConnectError."""
    try:
        seconds = parse_duration(since)
    except ValueError as error:
        raise ConfigError(f"--since: {error}, got {since!r}") from None
    now = time.time()
    start = max(now - seconds, 0.0)
    with kept_records(policy, settings) as records:
        judged = records.forecasts().judged(min(start, now - LOOKS_BACK_SECONDS)) if records is not None else ()
    found = accuracy(judged, since=start, now=now)
    if output is Output.JSON:
        print_json(document(found, since=start))
    else:
        print_accuracy(stdout_console(), found, since=start)


def document(found: Accuracy, *, since: float) -> dict[str, Any]:
    """The JSON document:

        {schemaVersion, since, all: SCORES, pools: [{pool, ...SCORES}]}
        SCORES = {count, unknown, tooLittleData, mae, under, over, coverage, hotDays, calledHot, hotRecall,
                  hotPrecision, relievedDays, peakHourErrorHours, unchangedShare, unchangedMae,
                  verdicts: {prevented, falseAlarm, tooLate, notMoved}, drift}

    Errors are shares of a node's capacity, the other figures 0..1; null = too few to tell, or nothing to count. `pool`
    is null for nodes in none, `drift` a sentence or null. What each means stands at `forecast.accuracy.Scores`.
    """
    return {
        "schemaVersion": SCHEMA_VERSION,
        "since": datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
        "all": _scores(found.everything),
        "pools": [{"pool": name or None, **_scores(scores)} for name, scores in found.pools.items()],
    }


def _scores(scores: Scores) -> dict[str, Any]:
    return {
        "count": scores.count,
        "unknown": scores.unknown,
        "tooLittleData": not scores.enough,
        "mae": _number(scores.mae),
        "under": _number(scores.under),
        "over": _number(scores.over),
        "coverage": _number(scores.coverage),
        "hotDays": scores.hot_days,
        "calledHot": scores.called_hot,
        "hotRecall": _number(scores.hot_recall),
        "hotPrecision": _number(scores.hot_precision),
        "relievedDays": scores.relieved,
        "peakHourErrorHours": _number(scores.peak_hour_error),
        "unchangedShare": _number(scores.unchanged_share),
        "unchangedMae": _number(scores.unchanged_mae),
        "verdicts": {verdict.value: count for verdict, count in scores.verdicts.items()},
        "drift": scores.drift or None,
    }


def print_accuracy(console: Console, found: Accuracy, *, since: float) -> None:
    """Tables for people, and a note for each pool whose forecasts are getting worse."""
    if not found.pools:
        made = datetime.fromtimestamp(since, UTC)
        console.print(f"No forecast made since {made:%Y-%m-%d} has been judged yet: that is done when its day is over.")
        return
    lines = [*((name or "-", scores) for name, scores in found.pools.items()), (ALL, found.everything)]
    table = plain_table(
        "Forecasts of a day's P95 against what came; errors are shares of a node's capacity",
        "POOL",
        "COUNT",
        "ERROR",
        "TOO LOW",
        "TOO HIGH",
        "COVERED",
        "HOT FOUND",
        "HOT RIGHT",
        "HOURS OFF",
        "UNCHANGED",
        "THEIR ERROR",
        "",
    )
    for name, scores in lines:
        table.add_row(
            name,
            str(scores.count),
            _share(scores.mae),
            _share(scores.under),
            _share(scores.over),
            _share(scores.coverage),
            _share(scores.hot_recall),
            _share(scores.hot_precision),
            "-" if math.isnan(scores.peak_hour_error) else f"{scores.peak_hour_error:.1f}",
            _share(scores.unchanged_share),
            _share(scores.unchanged_mae),
            "" if scores.enough else f"too little data: {LEAST} are needed",
        )
    console.print(table)
    if any(found.everything.verdicts.values()):
        _print_verdicts(console, lines)
    for name, scores in lines:
        if scores.drift and (name != ALL or not any(each.drift for each in found.pools.values())):
            where = "All pools" if name == ALL else f"Pool {name}"
            console.print(Text.assemble(("Note:", "yellow"), f" {where}: forecasts are getting worse: {scores.drift}."))


def _print_verdicts(console: Console, lines: list[tuple[str, Scores]]) -> None:
    table = plain_table("Nodes relieved ahead of a peak", "POOL", "PREVENTED", "FALSE ALARM", "TOO LATE", "NOT MOVED")
    order = (Verdict.PREVENTED, Verdict.FALSE_ALARM, Verdict.TOO_LATE, Verdict.NOT_MOVED)
    for name, scores in lines:
        table.add_row(name, *(str(scores.verdicts[verdict]) for verdict in order))
    console.print(table)


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
