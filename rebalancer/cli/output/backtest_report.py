"""A backtest as a JSON document and as tables."""

import math
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console

from rebalancer.cli.output.tables import UNKNOWN, number, plain_table, print_notes
from rebalancer.forecast.backtest.backtest import Backtest, bar
from rebalancer.forecast.backtest.day_weights import Proposal, as_policy, written
from rebalancer.forecast.backtest.scores import Comparison, Errors, Score
from rebalancer.forecast.series.percentiles import P95
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.model.notation.figures import percent
from rebalancer.policy.schema.forecast import Forecast

MORE_LOSS, COVERAGE_SLACK, RECALL = 0.05, 0.03, 0.90


def acceptance_criteria(result: Backtest) -> list[dict[str, Any]]:
    """What the default predictor must reach, and its values; NaN without a hot day."""
    default, best = result.score(result.default), result.best_simple
    less = less_loss(result)
    coverage = default.errors.coverage
    return [
        _at_least(f"lower loss than {best.predictor}, the best baseline", less, -MORE_LOSS),
        {
            "criterion": "coverage",
            "required": f"{result.coverage:.0%} +- {COVERAGE_SLACK:.0%}",
            "value": round(coverage, 5),
            "met": bool(abs(coverage - result.coverage) <= COVERAGE_SLACK),
        },
        _at_least("recall of hot days", default.hot_recall, RECALL),
    ]


def less_loss(result: Backtest) -> float:
    """Share of the best baseline's loss that the default saves; negative where it loses more."""
    best = bar(result.best_simple)
    return 1.0 - result.score(result.default).errors.pinball / best if best > 0 else 0.0


def _at_least(name: str, value: float, least: float) -> dict[str, Any]:
    return {"criterion": name, "required": f">= {least:.0%}", "value": round(value, 5), "met": bool(value >= least)}


def document(result: Backtest, policy: Forecast) -> dict[str, Any]:
    """`backtest -o json`. Errors are shares of a node's mean usage; null = unknown."""
    loss = _loss_key(result.resource)
    return {
        "resource": result.resource.name,
        "default": result.default,
        **_comparison(result.total, loss),
        "bestBaseline": result.best_simple.predictor,
        "acceptanceCriteria": acceptance_criteria(result),
        "pools": [{"pool": pool, **_comparison(each, loss)} for pool, each in result.pools.items()],
        "proposal": {
            # the day weights of the policy are of all resources
            "policy": as_policy(result.proposals, policy) if result.resource == OF_CPU else None,
            "pools": [_proposal(each, loss) for each in result.proposals],
        },
        "excludedNodeDays": result.left_out,
        "notes": result.notes,
    }


def _loss_key(resource: ForecastResource) -> str:
    """`pinball90`"""
    return f"pinball{round(100 * resource.loss_at)}"


def _comparison(comparison: Comparison, loss: str) -> dict[str, Any]:
    return {
        "predictors": [_predictor(score, loss) for score in comparison.scores],
        "forecasts": comparison.forecasts,
        "hotDays": comparison.hot_days,
        "peakHourErrorHours": round(comparison.peak_hour_error, 5),
        "peakHourAccuracy": round(comparison.peak_within_hour, 5),
        "peakHourAccuracyLastDay": round(comparison.yesterday_within_hour, 5),
    }


def _predictor(score: Score, loss: str) -> dict[str, Any]:
    return {
        "predictor": score.predictor,
        "baseline": score.simple,
        **_errors(score.errors, loss),
        "hotRecall": round(score.hot_recall, 5),
        "hotPrecision": round(score.hot_precision, 5),
        "withoutMargin": _errors(score.bare, loss),
        "withoutLimit": _errors(score.unlimited, loss),
        "coverageByWeekday": [round(each, 5) for each in score.weekdays],
        "coverageByHour": {f"{hour:02d}": round(each, 5) for hour, each in score.hours.items()},
    }


def _errors(errors: Errors, loss: str) -> dict[str, float]:
    return {
        "mae": round(errors.mae, 5),
        "under": round(errors.under, 5),
        "over": round(errors.over, 5),
        loss: round(errors.pinball, 5),
        "coverage": round(errors.coverage, 5),
    }


def _proposal(proposal: Proposal, loss: str) -> dict[str, Any]:
    return {
        "pool": proposal.pool,
        "current": written(proposal.current),
        "best": written(proposal.best) if proposal.best is not None else None,
        "trainingDays": proposal.chosen_on,
        "heldOutDays": proposal.held_out,
        f"{loss}Current": round(proposal.loss_current, 5),
        f"{loss}Best": round(proposal.loss_best, 5),
        "gain": round(proposal.gain, 5),
        "recommended": proposal.worth_it,
        "verdict": proposal.verdict,
    }


SCORES = ("ERROR", "UNDER", "OVER", "COVERAGE", "HOT RECALL", "HOT PRECISION")


def print_report(console: Console, result: Backtest, policy: Forecast, *, of_traces: bool) -> None:
    """Tables, and the section for the policy file."""
    total = result.total
    resource, scores = result.resource, (f"LOSS AT {result.resource.loss_at:g}", *SCORES)
    what = "P95" if resource.statistic == P95 else "Highest"
    of = "CPU" if resource == OF_CPU else resource.name
    title = f"{what} of the next day, {total.forecasts} node days ({total.hot_days} hot); shares of a node's mean {of}"
    table = plain_table(title, "PREDICTOR", *scores, "LOSS WITHOUT MARGIN", keys=1)
    for score in sorted(total.scores, key=lambda each: each.errors.pinball):
        kind = " (default)" if score.predictor == result.default else " (baseline)" if score.simple else ""
        table.add_row(score.predictor + kind, *_cells(score), number(score.bare.pinball, 4))
    console.print(table)
    criteria = plain_table("Acceptance criteria of the default", "CRITERION", "REQUIRED", "VALUE", "", keys=1)
    for each in acceptance_criteria(result):
        value = percent(each["value"])
        missed = UNKNOWN if value == UNKNOWN else "NOT MET"
        criteria.add_row(each["criterion"], each["required"], value, "met" if each["met"] else missed)
    console.print(criteria)
    pools = plain_table(f"{result.default} in each pool", "POOL", *scores, "NODE DAYS", "LOWEST LOSS", keys=1)
    for pool, comparison in result.pools.items():
        if not comparison.forecasts:
            pools.add_row(pool, *[UNKNOWN] * len(scores), "0", UNKNOWN)
            continue
        default = next(score for score in comparison.scores if score.predictor == result.default)
        best = min(comparison.scores, key=lambda score: score.errors.pinball)
        lowest = f"{best.predictor} {best.errors.pinball:.4f}"
        pools.add_row(pool, *_cells(default), str(comparison.forecasts), lowest)
    console.print(pools)
    console.print(
        f"Busiest quarter of an hour: within one hour on {percent(total.peak_within_hour)} of days "
        f"(yesterday's: {percent(total.yesterday_within_hour)}), median error {total.peak_hour_error:.1f} h."
    )
    default = result.score(result.default)
    if len(default.hours) > 1:
        hours = ", ".join(f"{hour:02d}:00 {percent(each)}" for hour, each in default.hours.items())
        console.print(f"Coverage by weekday: {', '.join(map(percent, default.weekdays))}; by hour: {hours}.")
    if result.left_out:
        console.print(f"{result.left_out} node days are excluded for insufficient data.")
    _print_proposals(console, result.proposals, policy, of_traces=of_traces)
    print_notes(console, result.notes)


FOLDERS = (
    "LOSS AT 0.9",
    "BEST BASELINE",
    "LESS LOSS",
    "COVERAGE",
    "WEEKDAYS",
    "HOT RECALL",
    "PEAK WITHIN 1H",
    "YESTERDAY'S",
)


def print_folders(console: Console, results: Sequence[tuple[str, Backtest]]) -> None:
    """The default in each folder of traces, the worst one first."""
    table = plain_table("P95 of the next 24 hours, four forecasts a day, by folder", "FOLDER", *FOLDERS, keys=1)
    gains = {folder: less_loss(each) for folder, each in results}
    for folder, result in sorted(results, key=lambda each: gains[each[0]]):
        default, best = result.score(result.default), result.best_simple
        weekdays = [each for each in default.weekdays if math.isfinite(each)]
        table.add_row(
            folder,
            f"{default.errors.pinball:.4f}",
            f"{best.predictor} {bar(best):.4f}",
            percent(gains[folder]),
            percent(default.errors.coverage),
            f"{percent(min(weekdays))} - {percent(max(weekdays))}",
            percent(default.hot_recall),
            percent(result.total.peak_within_hour),
            percent(result.total.yesterday_within_hour),
        )
    console.print(table)
    console.print(f"Mean: {percent(sum(gains.values()) / len(gains))} less loss than the best baseline of each folder.")


def _cells(score: Score) -> list[str]:
    errors = score.errors
    return [
        f"{errors.pinball:.4f}",
        f"{errors.mae:.3f}",
        f"{errors.under:.3f}",
        f"{errors.over:.3f}",
        percent(errors.coverage),
        percent(score.hot_recall),
        percent(score.hot_precision),
    ]


def _print_proposals(console: Console, proposals: Sequence[Proposal], policy: Forecast, *, of_traces: bool) -> None:
    kind = "nodes like pool" if of_traces else "pool"
    for each in proposals:
        console.print(f"Day weights for {kind} {each.pool}: {each.verdict}", highlight=False, markup=False)
    section = as_policy(proposals, policy)
    if section is not None:
        made = " (replace the names of the pools, which are the backtest's)" if of_traces else ""
        console.print(f"\n# for the policy file{made}", highlight=False)
        console.print(yaml.safe_dump(section, sort_keys=False), end="", markup=False, highlight=False)
