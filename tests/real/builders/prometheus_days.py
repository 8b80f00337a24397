"""Days of samples for a real Prometheus, written day by day so that neither we nor promtool need much memory."""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Floats

SPACING_SECONDS = 145.0
"""Two samples in every five minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSeries:
    """One series: times (seconds since the epoch) -> values; NaN where there is no sample."""

    metric: str
    labels: Mapping[str, str]
    values: Callable[[Floats], Floats]


def hourly_rate(cores: Callable[[Floats], Floats], since: float) -> Callable[[Floats], Floats]:
    """A counter whose rate is `cores` of the hour (since `since`) that it is in: exact to integrate, and to predict."""

    def values(times: Floats) -> Floats:
        hours = np.arange(0, int((times[-1] - since) // 3600) + 2, dtype=np.float64)
        whole = np.concatenate(([0.0], np.cumsum(cores(hours) * 3600.0)))
        hour = ((times - since) // 3600).astype(np.int64)
        return 1000.0 + whole[hour] + cores(hour.astype(np.float64)) * ((times - since) - hour * 3600.0)

    return values


def fill_days(
    data: Path,
    series: Sequence[LongSeries],
    *,
    days: Iterable[int],
    since: float = 0.0,
    until: float,
    spacing: float = SPACING_SECONDS,
) -> int:
    """Write blocks for whole UTC days into a data folder, nothing before `since` or after `until`; how many samples
    were written."""
    data.mkdir(exist_ok=True)
    written = 0
    ordered = sorted(series, key=lambda each: each.metric)
    text = data.parent / "day.om"
    for day in days:
        times = np.arange(max(day * DAY_SECONDS, since), min((day + 1) * DAY_SECONDS, until), spacing)
        if not len(times):
            continue
        stamps = [f" {at:.0f}\n" for at in times.tolist()]
        with text.open("w") as out:
            for each in ordered:
                name = each.metric + "{" + ",".join(f'{k}="{v}"' for k, v in each.labels.items()) + "} "
                for value, stamp in zip(each.values(times).tolist(), stamps, strict=True):
                    if value == value:
                        out.write(f"{name}{value:.4f}{stamp}")
                        written += 1
            out.write("# EOF\n")
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h", text, data],
            check=True,
            capture_output=True,
        )
    text.unlink(missing_ok=True)
    return written
