"""`rebalancer forecast --accuracy`: accuracy of past forecasts, and the verdicts of proactive evictions."""

import time
from typing import Any

from rich.console import Console
from rich.text import Text

from rebalancer.bootstrap.wiring.database import kept_records
from rebalancer.cli.invocation import Invocation
from rebalancer.cli.output.formats import Shown
from rebalancer.cli.output.json import at
from rebalancer.cli.output.tables import UNKNOWN, number, plain_table
from rebalancer.cli.output.times import local
from rebalancer.forecast.evaluation.accuracy import LEAST, LOOKS_BACK_SECONDS, Accuracy, Scores, accuracy
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.figures import percent
from rebalancer.model.records.forecasts import Verdict
from rebalancer.policy.schema.types import parse_duration

ALL = "(all)"
WATCH_SECONDS = 60.0


def show_accuracy(invocation: Invocation, *, since: str) -> None:
    """Prints the accuracy. Raises ConfigError, also for an invalid duration `since`, and ConnectError."""
    try:
        seconds = parse_duration(since)
    except ValueError as error:
        raise ConfigError(f"--since: {error}, got {since!r}") from None
    invocation.show(lambda: _shown(invocation, seconds), every=WATCH_SECONDS)


def _shown(invocation: Invocation, seconds: float) -> Shown:
    now = time.time()
    start = max(now - seconds, 0.0)
    with kept_records(invocation.policy, invocation.settings) as records:
        verified = records.forecasts().judged(min(start, now - LOOKS_BACK_SECONDS)) if records is not None else ()
    found = accuracy(verified, since=start, now=now)
    return Shown(
        document=document(found, since=start),
        draw=lambda screen: print_accuracy(screen, found, since=start),
        rows="pools",
    )


def document(found: Accuracy, *, since: float) -> dict[str, Any]:
    """The JSON document:

        {schemaVersion, since, all: SCORES, pools: [{pool, ...SCORES}]}
        SCORES = {count, unknown, insufficientData, mae, under, over, coverage, hotDays, predictedHot, hotRecall,
                  hotPrecision, relievedDays, peakHourErrorHours, unchangedShare, unchangedMae,
                  verdicts: {prevented, falseAlarm, tooLate, notMoved}, drift}

    Errors are shares of a node's capacity, the other figures 0..1; null = too few forecasts, or nothing to count.
    `pool` is null for nodes in none, `drift` a sentence or null. `forecast.accuracy.Scores` defines each figure.
    """
    return {
        "since": at(since),
        "all": _scores(found.everything),
        "pools": [{"pool": name or None, **_scores(scores)} for name, scores in found.pools.items()],
    }


def _scores(scores: Scores) -> dict[str, Any]:
    return {
        "count": scores.count,
        "unknown": scores.unknown,
        "insufficientData": not scores.enough,
        "mae": round(scores.mae, 5),
        "under": round(scores.under, 5),
        "over": round(scores.over, 5),
        "coverage": round(scores.coverage, 5),
        "hotDays": scores.hot_days,
        "predictedHot": scores.called_hot,
        "hotRecall": round(scores.hot_recall, 5),
        "hotPrecision": round(scores.hot_precision, 5),
        "relievedDays": scores.relieved,
        "peakHourErrorHours": round(scores.peak_hour_error, 5),
        "unchangedShare": round(scores.unchanged_share, 5),
        "unchangedMae": round(scores.unchanged_mae, 5),
        "verdicts": scores.verdicts,
        "drift": scores.drift or None,
    }


def print_accuracy(console: Console, found: Accuracy, *, since: float) -> None:
    """Tables, and a note for each pool whose forecasts get worse."""
    if not found.pools:
        console.print(
            f"No forecast since {local(since):%Y-%m-%d} has been evaluated yet; a forecast is evaluated after its day."
        )
        return
    lines = [*((name or UNKNOWN, scores) for name, scores in found.pools.items()), (ALL, found.everything)]
    columns = ("COUNT", "ERROR", "UNDER", "OVER", "COVERAGE", "HOT RECALL", "HOT PRECISION", "HOURS OFF")
    title = "Forecasts of the daily P95 against actuals; errors are shares of a node's capacity"
    table = plain_table(title, "POOL", *columns, "UNCHANGED", "UNCHANGED ERROR", "DETAIL", keys=1)
    for name, scores in lines:
        table.add_row(
            name,
            str(scores.count),
            percent(scores.mae),
            percent(scores.under),
            percent(scores.over),
            percent(scores.coverage),
            percent(scores.hot_recall),
            percent(scores.hot_precision),
            number(scores.peak_hour_error),
            percent(scores.unchanged_share),
            percent(scores.unchanged_mae),
            "" if scores.enough else f"insufficient data: at least {LEAST} are needed",
        )
    console.print(table)
    if any(found.everything.verdicts.values()):
        _print_verdicts(console, lines)
    for name, scores in lines:
        if scores.drift and (name != ALL or not any(each.drift for each in found.pools.values())):
            where = "All pools" if name == ALL else f"Pool {name}"
            console.print(Text.assemble(("Note:", "yellow"), f" {where}: forecasts get worse: {scores.drift}."))


def _print_verdicts(console: Console, lines: list[tuple[str, Scores]]) -> None:
    table = plain_table("Nodes relieved before a peak", "POOL", "PREVENTED", "FALSE ALARM", "TOO LATE", "NOT MOVED")
    order = (Verdict.PREVENTED, Verdict.FALSE_ALARM, Verdict.TOO_LATE, Verdict.NOT_MOVED)
    for name, scores in lines:
        table.add_row(name, *(str(scores.verdicts[verdict]) for verdict in order))
    console.print(table)
