"""A backtest as JSON and as tables."""

import math
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.tables import plain_table
from rebalancer.forecast.backtest.backtest import Backtest, bar
from rebalancer.forecast.backtest.day_weights import Proposal, as_policy, written
from rebalancer.forecast.backtest.scores import Comparison, Errors, Score
from rebalancer.policy.schema.forecast import Forecast

SCHEMA_VERSION = "1"
LESS_LOSS_AIM, COVERAGE_SLACK, RECALL_AIM, PRECISION_AIM = 0.10, 0.03, 0.90, 0.80


def aims(result: Backtest) -> list[dict[str, Any]]:
    """What the default has to reach, and what it reached. Null where no day was hot."""
    mine, best = result.score(result.default), result.best_simple
    less = 1.0 - mine.errors.pinball / bar(best) if bar(best) > 0 else 0.0
    return [
        _aim(f"less loss than {best.predictor}, the best simple one", less, f">= {LESS_LOSS_AIM:.0%}", LESS_LOSS_AIM),
        {
            "aim": "days at or under the forecast",
            "wanted": f"{result.coverage:.0%} +- {COVERAGE_SLACK:.0%}",
            "value": _number(mine.errors.coverage),
            "holds": bool(abs(mine.errors.coverage - result.coverage) <= COVERAGE_SLACK),
        },
        _aim("hot days found", mine.hot_recall, f">= {RECALL_AIM:.0%}", RECALL_AIM),
        _aim("days called hot that were", mine.hot_precision, f">= {PRECISION_AIM:.0%}", PRECISION_AIM),
    ]


def _aim(name: str, value: float, wanted: str, least: float) -> dict[str, Any]:
    return {"aim": name, "wanted": wanted, "value": _number(value), "holds": bool(value >= least)}


def document(result: Backtest, policy: Forecast) -> dict[str, Any]:
    """The whole result. Errors are shares of what a node uses on average; null means that it can't be told."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "default": result.default,
        **_comparison(result.total),
        "bestSimple": result.best_simple.predictor,
        "aims": aims(result),
        "pools": [{"pool": pool, **_comparison(each)} for pool, each in result.pools.items()],
        "proposal": {
            "policy": as_policy(result.proposals, policy),
            "pools": [_proposal(each) for each in result.proposals],
        },
        "leftOut": result.left_out,
        "notes": list(result.notes),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "predictors": [_predictor(score) for score in comparison.scores],
        "forecasts": comparison.forecasts,
        "hotDays": comparison.hot_days,
        "peakHourErrorHours": _number(comparison.peak_hour_error),
    }


def _predictor(score: Score) -> dict[str, Any]:
    return {
        "predictor": score.predictor,
        "simple": score.simple,
        **_errors(score.errors),
        "hotRecall": _number(score.hot_recall),
        "hotPrecision": _number(score.hot_precision),
        "withoutMargin": _errors(score.bare),
        "highest": _errors(score.highest),
    }


def _errors(errors: Errors) -> dict[str, float | None]:
    return {
        "mae": _number(errors.mae),
        "under": _number(errors.under),
        "over": _number(errors.over),
        "pinball90": _number(errors.pinball),
        "coverage": _number(errors.coverage),
    }


def _proposal(proposal: Proposal) -> dict[str, Any]:
    return {
        "pool": proposal.pool,
        "current": written(proposal.current),
        "best": written(proposal.best) if proposal.best is not None else None,
        "chosenOnDays": proposal.chosen_on,
        "heldOutDays": proposal.held_out,
        "pinball90Current": _number(proposal.loss_current),
        "pinball90Best": _number(proposal.loss_best),
        "gain": _number(proposal.gain),
        "worthIt": proposal.worth_it,
        "verdict": proposal.verdict,
    }


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _share(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"


def print_report(console: Console, result: Backtest, policy: Forecast, *, of_traces: bool) -> None:
    """Tables, and what to put into the policy file."""
    total = result.total
    title = f"Next day's P95, {total.forecasts} node days ({total.hot_days} hot); shares of a node's mean CPU"
    table = plain_table(
        title,
        "PREDICTOR",
        "LOSS AT 0.9",
        "ERROR",
        "TOO LOW",
        "TOO HIGH",
        "COVERED",
        "HOT FOUND",
        "HOT RIGHT",
        "NO MARGIN",
    )
    for score in sorted(total.scores, key=lambda each: each.errors.pinball):
        marks = " (default)" if score.predictor == result.default else " (simple)" if score.simple else ""
        table.add_row(score.predictor + marks, *_cells(score), f"{score.bare.pinball:.4f}")
    console.print(table)
    reached = plain_table("Aims of the default", "AIM", "WANTED", "REACHED", "")
    for aim in aims(result):
        missed = "-" if aim["value"] is None else "MISSED"
        reached.add_row(aim["aim"], aim["wanted"], _share(aim["value"]), "holds" if aim["holds"] else missed)
    console.print(reached)
    pools = plain_table(
        f"{result.default} in each pool",
        "POOL",
        "LOSS AT 0.9",
        "ERROR",
        "TOO LOW",
        "TOO HIGH",
        "COVERED",
        "HOT FOUND",
        "HOT RIGHT",
        "NODE DAYS",
        "LEAST LOSS",
    )
    for pool, each in result.pools.items():
        if not each.forecasts:
            pools.add_row(pool, *["-"] * 7, "0", "-")
            continue
        mine = next(score for score in each.scores if score.predictor == result.default)
        best = min(each.scores, key=lambda score: score.errors.pinball)
        pools.add_row(pool, *_cells(mine), str(each.forecasts), f"{best.predictor} {best.errors.pinball:.4f}")
    console.print(pools)
    console.print(f"Busiest quarter of an hour: predicted {total.peak_hour_error:.1f} h off in the median.")
    if result.left_out:
        console.print(f"{result.left_out} node days are left out: too little is known of them.")
    _print_proposals(console, result.proposals, policy, of_traces=of_traces)
    for note in result.notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {note}"))


def _cells(score: Score) -> list[str]:
    errors = score.errors
    return [
        f"{errors.pinball:.4f}",
        f"{errors.mae:.3f}",
        f"{errors.under:.3f}",
        f"{errors.over:.3f}",
        _share(errors.coverage),
        _share(score.hot_recall),
        _share(score.hot_precision),
    ]


def _print_proposals(console: Console, proposals: Sequence[Proposal], policy: Forecast, *, of_traces: bool) -> None:
    kind = "nodes like pool" if of_traces else "pool"
    for each in proposals:
        console.print(f"Weights of the days for {kind} {each.pool}: {each.verdict}", highlight=False, markup=False)
    section = as_policy(proposals, policy)
    if section is not None:
        made = " (these pools are the backtest's own: put your names)" if of_traces else ""
        console.print(f"\n# for the policy file{made}", highlight=False)
        console.print(yaml.safe_dump(section, sort_keys=False), end="", markup=False, highlight=False)
