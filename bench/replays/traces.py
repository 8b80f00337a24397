"""The synthetic cluster of `bench.replays.cluster` with the CPU of recorded traces: `timestamp,value` files, of which
each service follows one, from a day of its own on."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.replays.cluster import CORES, make
from rebalancer.cli.traces import read_traces
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedUsage, Recording

SEED = 22
"""Of the published week."""
PODS_A_NODE = 14
PEAK_SHARE, PEAK_NODES = 0.9, 0.2
"""The traces are scaled so that this part of the nodes has peaks over this share of its CPU."""
SYSTEM_SHARE = 0.03
FULL_SHARE = 0.97
UNSET = "REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)"

Grid = NDArray[np.float64]


def trace_folders() -> list[Path]:
    """Those that `REBALANCER_TRACES` names, separated by colons."""
    return [Path(each) for each in os.environ.get("REBALANCER_TRACES", "").split(os.pathsep) if each]


def parser_of_weeks(bench: str) -> argparse.ArgumentParser:
    """The options of a benchmark over weeks."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {bench}")
    parser.add_argument("--seed", type=int, help="one week of all folders, from a seed of its own")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--days", type=float, default=7)
    return parser


def folders_by_name(bench: str) -> dict[str, Path]:
    """Name -> folder of `trace_folders`. Without any, a line on stderr says how to name them."""
    folders = {each.name: each for each in trace_folders()}
    if not folders:
        print(f"{bench}: {UNSET}", file=sys.stderr)
    return folders


def composed(folders: Sequence[Path], *, nodes: int, days: float, seed: int = SEED) -> Recording:
    """The synthetic cluster with the CPU of the traces. Raises ConfigError without a trace of that length."""
    recording = make(nodes, nodes * PODS_A_NODE, days, seed)
    traces = _curves(folders, recording.steps)
    if not traces:
        raise ConfigError(f"REBALANCER_TRACES: no trace of {days:g} days")
    names = ", ".join(sorted(folder.name for folder in folders))
    usage = _usage(recording, traces, np.random.default_rng(seed))
    return replace(recording, cluster="traces", source=f"{len(traces)} public traces ({names})", usage={CPU: usage})


def _curves(folders: Sequence[Path], steps: int) -> list[Grid]:
    """(steps,) of each trace, with a mean of 1; traces that are shorter are left out."""
    out = []
    for folder in folders:
        for _, days in sorted(read_traces(folder).items()):
            flat = days.reshape(-1).astype(np.float64)
            known = np.isfinite(flat)
            if len(flat) < steps or not known.any():
                continue
            filled = np.interp(np.arange(len(flat)), np.flatnonzero(known), flat[known])
            out.append(filled / max(filled.mean(), 1e-9))
    return out


def _usage(recording: Recording, traces: Sequence[Grid], random: np.random.Generator) -> RecordedUsage:
    pods, given = recording.pods, recording.usage[CPU]
    top = np.array([_top(recording, owner) for owner in pods.owner.tolist()])
    services = {owner: _shape(random, traces, recording.steps) for owner in np.unique(top).tolist()}
    requests = [recording.pod_templates[each].cpu_request_millicores for each in pods.template.tolist()]
    levels = {owner: random.lognormal(-0.6, 0.7) for owner in services}
    values = np.empty(len(given.pod_values))
    sums = np.zeros((len(recording.nodes), recording.steps))
    spans = []
    for pod in range(len(pods)):
        begin, end = int(given.pod_start[pod]), int(given.pod_start[pod + 1])
        steps = slice(int(given.pod_first[pod]), int(given.pod_first[pod]) + end - begin)
        owner = int(top[pod])
        values[begin:end] = requests[pod] * levels[owner] * services[owner][steps] * random.lognormal(0.0, 0.15)
        starts = recording.start + STEP_SECONDS * np.arange(steps.start, steps.stop)
        ran = np.minimum(starts + STEP_SECONDS, pods.ended[pod]) - np.maximum(starts, pods.bound[pod])
        sums[pods.node[pod], steps] += values[begin:end] * np.clip(ran, 0, STEP_SECONDS) / STEP_SECONDS
        spans.append((slice(begin, end), int(pods.node[pod]), steps))
    capacity = CORES * 1000.0
    scale = (PEAK_SHARE - SYSTEM_SHARE) * capacity / np.quantile(sums.max(axis=1), 1 - PEAK_NODES)
    limited = np.minimum(sums * scale, (FULL_SHARE - SYSTEM_SHARE) * capacity)
    factor = limited / np.maximum(sums, 1e-9)
    for span, node, steps in spans:
        values[span] *= factor[node, steps]
    return replace(
        given, pod_values=values.astype(np.float32), node=(limited + SYSTEM_SHARE * capacity).astype(np.float32)
    )


def _top(recording: Recording, owner: int) -> int:
    while owner >= 0 and recording.owners[owner].parent >= 0:
        owner = recording.owners[owner].parent
    return owner


def _shape(random: np.random.Generator, traces: Sequence[Grid], steps: int) -> Grid:
    """A trace from one of its days on."""
    trace = traces[int(random.integers(len(traces)))]
    day = int(random.integers((len(trace) - steps) // SLOTS + 1))
    return trace[day * SLOTS : day * SLOTS + steps]
