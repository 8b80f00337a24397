"""Days before the lab's start, as blocks for its real Prometheus: what a replay of the practice cluster reads.

CPU counters are integrals of what was used, as on `/metrics`; gauges are those of the lab's own Prometheus API.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from rebalancer.lab.loads.usage import SCRAPE_SECONDS, UsageModel
from rebalancer.lab.prometheus.gauges import AVAILABLE, TOTAL, WORKING_SET
from rebalancer.lab.prometheus.kube_state import KubeState
from rebalancer.lab.prometheus.promql import Selector
from rebalancer.lab.prometheus.rates import container_labels
from rebalancer.lab.prometheus.row import Row, node_labels
from rebalancer.lab.prometheus.series import CONTAINER_COUNTER, MODES, NODE_COUNTER, SeriesBook
from rebalancer.model.measured.history import HOUR_SECONDS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats

SPACING_SECONDS = 9 * SCRAPE_SECONDS
"""Two samples in each rate window of five minutes."""
GAUGES_EVERY = 2
"""Gauges have one in so many of these samples: Prometheus shows a sample for five minutes."""
BLOCK_SECONDS = 6 * HOUR_SECONDS
"""promtool keeps one block in memory."""
_IMPORT_SECONDS = 300.0


class Past:
    """The samples of a lab from `since` to `until` (seconds since the epoch).

    Counters end a rate window earlier: those that are scraped later have another origin, and no rate may span both.
    """

    def __init__(
        self, *, usage: UsageModel, book: SeriesBook, kube_state: KubeState, since: float, until: float
    ) -> None:
        self._usage, self._book = usage, book
        self._gauges = (TOTAL, AVAILABLE, WORKING_SET, "kube_node_info", *kube_state.spans)
        self._times = np.arange(since, until, SPACING_SECONDS)
        self._counted_until = until - STEP_SECONDS
        self._busy = np.zeros(0)
        self._pods: dict[str, float] = {}

    def write(self, data: Path) -> None:
        """Write blocks into a data folder, six hours at a time. Raises OSError."""
        samples = data.parent / "past.om"
        blocks = np.floor(self._times / BLOCK_SECONDS)
        for block in np.unique(blocks):
            times = self._times[blocks == block]
            with samples.open("w", encoding="utf-8") as file:
                self._write_counters(file, times[times < self._counted_until])
                seldom = times[::GAUGES_EVERY]
                for name in self._gauges:
                    _write(file, name, self._book.select(Selector(name=name), seldom), seldom)
                file.write("# EOF\n")
            import_samples(samples, data)

    def _write_counters(self, file: TextIO, times: Floats) -> None:
        if not len(times):
            return
        figures = self._usage.window_means(times, window_seconds=SPACING_SECONDS)
        machines, stays = figures.columns.machines, figures.columns.stays
        before = self._busy if len(self._busy) else np.zeros(len(machines))
        busy = before[:, None] + np.cumsum(figures.nodes * SPACING_SECONDS, axis=1)
        self._busy = busy[:, -1]
        rows = []
        for machine, seconds, up in zip(machines, busy, figures.up, strict=True):
            idle = machine.cores * (times - self._times[0] + SPACING_SECONDS) - seconds
            for mode, (of_busy, of_idle) in MODES.items():
                # a series for each CPU would be as many as all others together
                labels = {**node_labels(machine.address), "cpu": "all", "mode": mode}
                rows.append(Row(labels=labels, node="", values=of_busy * seconds + of_idle * idle, present=up))
        _write(file, NODE_COUNTER, rows, times)
        addresses, rows = {each.name: each.address for each in machines}, []
        for index, used, seen in zip(figures.rows.tolist(), figures.pods, figures.seen, strict=True):
            stay = stays[index]
            seconds = self._pods.get(stay.uid, 0.0) + np.cumsum(used * SPACING_SECONDS)
            self._pods[stay.uid] = float(seconds[-1])
            _, *containers = container_labels(stay, addresses[stay.node])
            for labels, (_, _, share) in zip(containers, stay.containers, strict=True):
                rows.append(Row(labels={**labels, "cpu": "total"}, node="", values=seconds * share, present=seen))
        _write(file, CONTAINER_COUNTER, rows, times)


def import_samples(samples: Path, data: Path) -> None:
    """Make blocks of a file in the OpenMetrics format, and remove it. Raises OSError."""
    command = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--quiet",
        "--max-block-duration=6h",
        str(samples),
        str(data),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"promtool: no answer in {_IMPORT_SECONDS:.0f} s") from None
    samples.unlink()
    if done.returncode != 0:
        raise OSError(f"promtool: {done.stderr.strip()}")


def _write(file: TextIO, name: str, rows: Sequence[Row], times: Floats) -> None:
    """The samples of a metric. A series of zeros, such as a phase that a pod isn't in, is left out."""
    stamps = [f" {at:.0f}\n" for at in times.tolist()]
    for row in rows:
        if not row.values[row.present].any():
            continue
        labels = ",".join(f'{key}="{value}"' for key, value in row.labels.items() if key != "__name__")
        head = f"{name}{{{labels}}} "
        lines = zip(row.values.tolist(), row.present.tolist(), stamps, strict=True)
        file.writelines(f"{head}{value:.4f}{stamp}" for value, present, stamp in lines if present)
