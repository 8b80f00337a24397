"""Write docs/examples/replay.html and replay.txt: a replay of public traces (`make replay`).

`REBALANCER_TRACES` names folders of recorded CPU traces (`timestamp,value`), separated by colons. A cluster of 50 nodes
is composed of them: its pods, rollouts and Jobs are those of the benchmark's synthetic cluster, and the CPU of each
service follows a trace, from a day of its own on. `--days` and `--nodes` make a smaller one.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.replays.cluster import CORES, make
from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.cli.common import parse_policy
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.replay import print_replay, when
from rebalancer.cli.output.tables import Screen
from rebalancer.cli.output.times import use_utc
from rebalancer.cli.traces import read_traces
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedUsage, Recording
from rebalancer.replay.comparison.summary import summary_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.web.pages.replay_page import render_replay

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
POLICY = ROOT / "policies" / "balanced.yaml"
SEED = 22
PODS_A_NODE = 14
PEAK_SHARE, PEAK_NODES = 0.9, 0.2
"""The traces are scaled so that this part of the nodes has peaks over this share of its CPU."""
SYSTEM_SHARE = 0.03
FULL_SHARE = 0.97

Grid = NDArray[np.float64]


def curves(folders: Sequence[Path], steps: int) -> list[Grid]:
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


def composed(folders: Sequence[Path], *, nodes: int, days: int) -> Recording:
    """The synthetic cluster with the CPU of the traces."""
    recording = make(nodes, nodes * PODS_A_NODE, days, SEED)
    traces = curves(folders, recording.steps)
    if not traces:
        sys.exit(f"REBALANCER_TRACES: no trace of {days} whole days")
    names = ", ".join(sorted(folder.name for folder in folders))
    usage = _usage(recording, traces, np.random.default_rng(SEED))
    return replace(recording, cluster="traces", source=f"{len(traces)} public traces ({names})", usage={CPU: usage})


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


def main() -> None:
    """Write the examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=EXAMPLES)
    wanted = parser.parse_args()
    folders = [Path(each) for each in os.environ.get("REBALANCER_TRACES", "").split(os.pathsep) if each]
    if not folders:
        sys.exit("REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)")
    use_utc()
    policy = parse_policy(POLICY.read_bytes(), path=POLICY)
    with TerminalProgress() as progress:
        made = replay(
            composed(folders, nodes=wanted.nodes, days=wanted.days),
            policy,
            [Variant(label=POLICY.name, policy=policy, part="")],
            workers=os.cpu_count() or 1,
            progress=progress,
        )
    assert made is not None
    wanted.folder.mkdir(exist_ok=True)
    (wanted.folder / "replay.html").write_text(render_replay(made, now=made.end), encoding="utf-8")
    text = io.StringIO()
    os.environ["COLUMNS"] = "80"
    print_replay(Screen(file=text), summary_of(made, when)[1])
    (wanted.folder / "replay.txt").write_text(text.getvalue(), encoding="utf-8")
    sys.stdout.write(text.getvalue())


if __name__ == "__main__":
    main()
