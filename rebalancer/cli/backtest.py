"""`rebalancer backtest`: recorded CPU traces, and how well each predictor would have forecast them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from rebalancer.cli.backtest_plot import picture
from rebalancer.cli.common import Output, OutputOption, print_json, stdout_console
from rebalancer.cli.progress import TerminalProgress
from rebalancer.cli.tables import plain_table
from rebalancer.forecast.backtest import COVERAGE, LEAST_DAYS, Backtest, Errors, Score, backtest, bar
from rebalancer.model.errors import ConfigError
from rebalancer.model.history import SLOTS, STEP_SECONDS, Grid

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = "1"
SEED = 1
LESS_LOSS_AIM, COVERAGE_SLACK, RECALL_AIM, PRECISION_AIM = 0.10, 0.03, 0.90, 0.80


def backtest_command(
    traces: Annotated[
        Path,
        typer.Option(
            "--traces",
            envvar="REBALANCER_TRACES",
            help="A folder of CSV files `timestamp,value`: 5-minute steps, CPU in percent of one machine.",
            show_default=False,
        ),
    ],
    output: OutputOption = Output.TABLE,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a picture (SVG) of one node and the losses to this file.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the clusters that are made of the traces.")] = SEED,
) -> None:
    """Compare the predictors on recorded CPU: nodes of several pods that come and go, each day forecast from earlier
    days only."""
    read = read_traces(traces)
    with TerminalProgress() as progress:
        result = backtest(read, seed=seed, step=lambda done, total: progress.step("Forecasting days", done, total))
    if plot is not None:
        try:
            plot.write_text(picture(result), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{plot}: {error.strerror or error}: expected a file that can be written") from None
    if output is Output.JSON:
        print_json(document(result, traces=sorted(read), seed=seed))
    else:
        _print(stdout_console(), result)


def read_traces(folder: Path) -> dict[str, Grid]:
    """Name -> (days, 288) percent of one machine, whole UTC days, NaN where there is no sample.

    Raises ConfigError for a folder or file that can't be used.
    """
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"{folder}: expected a folder with CSV files `timestamp,value`")
    traces = {file.stem: _read_trace(file) for file in files}
    longest = max(len(trace) for trace in traces.values())
    if longest < LEAST_DAYS:
        raise ConfigError(f"{folder}: expected a trace of at least {LEAST_DAYS} whole days, the longest has {longest}")
    return {name: trace for name, trace in traces.items() if len(trace)}


def _read_trace(file: Path) -> Grid:
    import pandas

    try:
        table = pandas.read_csv(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}: expected a readable file") from None
    except (ValueError, pandas.errors.ParserError):
        raise ConfigError(f"{file}: expected CSV with the columns timestamp,value") from None
    if not {"timestamp", "value"} <= set(table.columns):
        raise ConfigError(f"{file}: expected CSV with the columns timestamp,value")
    times = pandas.to_datetime(table["timestamp"], errors="coerce", utc=True, format="mixed")
    values = pandas.to_numeric(table["value"], errors="coerce")
    if times.isna().any():
        line = int(np.flatnonzero(times.isna())[0]) + 2
        raise ConfigError(f"{file}:{line}: timestamp: expected a time such as 2014-05-14 01:14:00")
    if (unusable := values.isna() & table["value"].notna()).any():
        raise ConfigError(f"{file}:{int(np.flatnonzero(unusable)[0]) + 2}: value: expected a number")
    return _whole_days(times, values)


def _whole_days(times: "pandas.Series[Any]", values: "pandas.Series[Any]") -> Grid:
    """Samples to mean values of steps; several in one step are averaged, a step without any is NaN."""
    import pandas

    epoch = pandas.Timestamp(0, tz="UTC")
    steps = ((times - epoch).dt.total_seconds() // STEP_SECONDS).to_numpy(dtype=np.int64)
    percent = values.to_numpy(dtype=np.float64)
    usable = np.isfinite(percent) & (percent >= 0)
    if not usable.any():
        return np.empty((0, SLOTS), dtype=np.float32)
    steps, percent = steps[usable], percent[usable]
    first = -(-int(steps.min()) // SLOTS) * SLOTS
    days = max((int(steps.max()) + 1 - first) // SLOTS, 0)
    inside = (steps >= first) & (steps < first + days * SLOTS)
    count = np.bincount(steps[inside] - first, minlength=days * SLOTS)
    total = np.bincount(steps[inside] - first, weights=percent[inside], minlength=days * SLOTS)
    means = np.divide(total, count, out=np.full(days * SLOTS, np.nan), where=count > 0)
    return np.asarray(means.reshape(days, SLOTS), dtype=np.float32)


def aims(result: Backtest) -> list[dict[str, Any]]:
    """What the default has to reach, and what it reached. Null where no day was hot."""
    mine, best = result.score(result.default), result.best_simple
    less = 1.0 - mine.errors.pinball / bar(best) if bar(best) > 0 else 0.0
    return [
        _aim(f"less loss than {best.predictor}, the best simple one", less, f">= {LESS_LOSS_AIM:.0%}", LESS_LOSS_AIM),
        {
            "aim": "days at or under the forecast",
            "wanted": f"{COVERAGE:.0%} +- {COVERAGE_SLACK:.0%}",
            "value": _number(mine.errors.coverage),
            "holds": bool(abs(mine.errors.coverage - COVERAGE) <= COVERAGE_SLACK),
        },
        _aim("hot days found", mine.hot_recall, f">= {RECALL_AIM:.0%}", RECALL_AIM),
        _aim("days called hot that were", mine.hot_precision, f">= {PRECISION_AIM:.0%}", PRECISION_AIM),
    ]


def _aim(name: str, value: float, wanted: str, least: float) -> dict[str, Any]:
    return {"aim": name, "wanted": wanted, "value": _number(value), "holds": bool(value >= least)}


def document(result: Backtest, *, traces: list[str], seed: int) -> dict[str, Any]:
    """The whole result. Errors are shares of what a node uses on average; null means that it can't be told."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "default": result.default,
        "predictors": [_predictor(score) for score in result.scores],
        "bestSimple": result.best_simple.predictor,
        "aims": aims(result),
        "proposals": [
            {"pool": each.pool, "halfLife": f"{each.half_life_hours}h", "pinball90": _number(each.pinball)}
            for each in result.proposals
        ],
        "forecasts": result.forecasts,
        "hotDays": result.hot_days,
        "peakHourErrorHours": _number(result.peak_hour_error),
        "traces": traces,
        "seed": seed,
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


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _share(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"


def _print(console: Console, result: Backtest) -> None:
    title = f"Next day's P95, {result.forecasts} node days ({result.hot_days} hot); shares of a node's mean CPU"
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
    for score in sorted(result.scores, key=lambda each: each.errors.pinball):
        marks = " (default)" if score.predictor == result.default else " (simple)" if score.simple else ""
        table.add_row(
            score.predictor + marks,
            f"{score.errors.pinball:.4f}",
            f"{score.errors.mae:.3f}",
            f"{score.errors.under:.3f}",
            f"{score.errors.over:.3f}",
            _share(score.errors.coverage),
            _share(score.hot_recall),
            _share(score.hot_precision),
            f"{score.bare.pinball:.4f}",
        )
    console.print(table)
    reached = plain_table("Aims of the default", "AIM", "WANTED", "REACHED", "")
    for aim in aims(result):
        reached.add_row(aim["aim"], aim["wanted"], _share(aim["value"]), "holds" if aim["holds"] else "MISSED")
    console.print(reached)
    console.print(f"Busiest quarter of an hour: predicted {result.peak_hour_error:.1f} h off in the median.")
    for each in result.proposals:
        console.print(f"Proposal for nodes like pool {each.pool}: forecast.days.halfLife: {each.half_life_hours}h")
