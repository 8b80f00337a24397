"""Recorded CPU from CSV files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rebalancer.forecast.backtest.backtest import LEAST_DAYS
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS, Grid

if TYPE_CHECKING:
    import pandas


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
