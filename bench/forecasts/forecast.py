"""What it costs to forecast a large cluster: `python -m bench forecast`.

5,000 nodes with 150,000 pods of 3,000 services; nine day blocks (8 days and today) lie in files and are read one after
another, as the store does it. One pod in ten is younger than the history, and had a predecessor of its service. Prints
one JSON object a line. Reading the files is a figure of its own (it is the store's); the memory is the whole process's.
The same days are forecast once more as days of memory, and memory leaks are found in them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from bench.lists.bench import _peak_mib
from bench.plan.landing import a_cluster
from rebalancer.forecast import forecast
from rebalancer.forecast.memory.leaks import find_leaks
from rebalancer.forecast.series.resource import ForecastResource
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import SLOTS, DayBlock, History
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.forecast import Forecast

NODES, FIRST_DAY, DAYS = 5_000, 20_000, 9
SECONDS_AIM, PEAK_AIM_MIB = 4.0, 1536.0
YOUNG = 10
"""One pod in so many is young."""


class BlocksOnDisk(Sequence[DayBlock]):
    """Days in files: each is read when it is asked for, and not kept."""

    def __init__(self, folder: Path, pods: Sequence[str], nodes: tuple[str, ...]) -> None:
        self._folder, self._nodes = folder, nodes
        self.reading = 0.0
        """CPU seconds spent on the files."""
        self._now = tuple(pods)
        self._before = tuple(_predecessor(name) if row % YOUNG == 0 else name for row, name in enumerate(pods))

    def __len__(self) -> int:
        return DAYS

    @overload
    def __getitem__(self, at: int) -> DayBlock: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[DayBlock]: ...
    def __getitem__(self, at: int | slice) -> DayBlock | Sequence[DayBlock]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(DAYS))]
        if not 0 <= at < DAYS:
            raise IndexError(at)
        started = time.process_time()
        pods, nodes = (np.load(self._folder / f"{what}-{at}.npy") for what in ("pods", "nodes"))
        self.reading += time.process_time() - started
        return DayBlock(
            day=FIRST_DAY + at,
            pods=self._now if at >= DAYS - 3 else self._before,
            pod_millicores=pods,
            nodes=self._nodes,
            node_millicores=nodes,
            complete=at < DAYS - 1,
        )

    def __iter__(self) -> Iterator[DayBlock]:
        return (self[at] for at in range(DAYS))


def _predecessor(name: str) -> str:
    return f"{name}x"


def _names(nodes: int) -> tuple[ClusterSnapshot, list[str]]:
    """The snapshot, its pods named as their ReplicaSet would, and `namespace/name` of each."""
    snapshot = a_cluster(nodes, rules=False)
    for index, owner in enumerate(snapshot.pods.owner.tolist()):
        snapshot.pods.names[index] = f"w{owner}-{index}"
    names = [
        f"{snapshot.namespaces[space]}/{name}"
        for space, name in zip(snapshot.pods.namespace.tolist(), snapshot.pods.names, strict=True)
    ]
    return snapshot, names


def write_days(folder: Path, nodes: int) -> None:
    """Load that follows the day, with noise, a level per pod, and a few samples missing."""
    random = np.random.default_rng(5)
    snapshot = a_cluster(nodes, rules=False)
    pods = len(snapshot.pods)
    level = random.gamma(2.0, 150.0, (pods, 1)).astype(np.float32)
    wave = (1.0 + 0.5 * np.sin(np.arange(SLOTS) / SLOTS * 2 * np.pi)).astype(np.float32)
    for day in range(DAYS):
        values = level * wave * random.uniform(0.7, 1.3, (1, SLOTS)).astype(np.float32)
        values *= random.random((pods, SLOTS), dtype=np.float32) * 0.4 + 0.8
        whole = np.zeros((nodes, SLOTS), dtype=np.float32)
        starts = np.flatnonzero(np.diff(snapshot.pods.node, prepend=-1))
        whole += np.add.reduceat(values, starts, axis=0) + 300.0
        values[:: YOUNG * 10, 50:60] = np.nan
        np.save(folder / f"pods-{day}.npy", values)
        np.save(folder / f"nodes-{day}.npy", whole)


def measure(folder: Path, nodes: int) -> dict[str, float]:
    """One forecast of everything, at 13:40 on the last day."""
    snapshot, names = _names(nodes)
    blocks = BlocksOnDisk(folder, names, snapshot.nodes.names)
    history = History(days=blocks)
    now = (FIRST_DAY + DAYS - 1) * 86_400.0 + 13 * 3600 + 2400
    started, wall = time.process_time(), time.perf_counter()
    result = forecast(
        history,
        snapshot,
        policy=Forecast(),
        pool_of=np.zeros(nodes, dtype=np.int32),
        pools=["all"],
        now=now,
    )
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    again = BlocksOnDisk(folder, names, snapshot.nodes.names)
    started = time.process_time()
    forecast(
        History(days=again),
        snapshot,
        policy=Forecast(),
        pool_of=np.zeros(nodes, dtype=np.int32),
        pools=["all"],
        now=now,
        resource=ForecastResource(name=MEMORY),
    )
    of_memory = time.process_time() - started - again.reading
    reading = again.reading
    started = time.process_time()
    find_leaks(again, snapshot, now=now)
    leaks = time.process_time() - started - (again.reading - reading)
    known = sum(each.days_used == DAYS - 1 for each in result.nodes)
    return {
        "cpu_seconds": seconds - blocks.reading,
        "reading_cpu_seconds": blocks.reading,
        "leaks_cpu_seconds": leaks,
        "wall_seconds": wall,
        "peak_mib": _peak_mib(),
        "nodes": float(known),
        "memory_cpu_seconds": of_memory,
    }


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args.nodes)))
        return 0
    with tempfile.TemporaryDirectory(prefix="forecast-bench-") as name:
        write_days(Path(name), args.nodes)
        command = [sys.executable, "-m", "bench.forecasts.forecast", "--child", name, "--nodes", str(args.nodes)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    aims = {"cpu_seconds": SECONDS_AIM, "memory_cpu_seconds": SECONDS_AIM, "peak_mib": PEAK_AIM_MIB}
    for figure, value in found.items():
        aim = aims.get(figure)
        holds = None if aim is None else value <= aim
        line = {"bench": "forecast", "figure": figure, "value": round(value, 3), "aim": aim, "holds": holds}
        print(json.dumps(line), flush=True)
    return int(any(found[figure] > aim for figure, aim in aims.items()))


if __name__ == "__main__":
    sys.exit(main())
