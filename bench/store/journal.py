"""What the journal costs: CPU of an entry, bytes of a day, and reading a day, at 5,000 nodes and 150,000 pods.

A hundredth of the pods is replaced in each hour, and the daemon appends every minute: new pods are bound in the next
entry and Ready in the one after it. Every second entry has what a cycle read of CPU.
"""

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.plan.landing import a_cluster
from rebalancer.model.cluster.nodes import NodeImages
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.recordings.journal import ReadUsage
from rebalancer.store.journal import DayJournal, recording_of
from rebalancer.store.journal.files import MAX_DAY_BYTES

CHURN_AN_HOUR = 0.01
EVERY_SECONDS = 60.0
IMAGES, IMAGES_PER_NODE = 2_000, 50
START = 20_000 * float(DAY_SECONDS)

AIM_QUIET_MS, AIM_ENTRY_MS, AIM_KEYFRAME_SECONDS = 20.0, 150.0, 3.0


class ChangingCluster:
    """A cluster whose pods are replaced at a constant rate. Its snapshots share what has not changed."""

    def __init__(self, nodes: int, *, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        base = a_cluster(nodes, rules=True)
        tops = tuple(
            Owner(kind="Deployment", namespace=each.namespace, name=each.name, uid=self._uid()) for each in base.owners
        )
        sets = tuple(
            replace(each, name=f"{each.name}-7d4b9c6f5", uid=self._uid(), parent=len(tops) + index)
            for index, each in enumerate(base.owners)
        )
        count = len(base.pods)
        owner = np.sort(base.pods.owner)
        created = START - self._random.uniform(0.0, 30 * DAY_SECONDS, count).round()
        pods = replace(
            base.pods,
            names=[self._name(each) for each in owner.tolist()],
            uids=[self._uid() for _ in range(count)],
            owner=owner,
            template=owner.copy(),
            namespace=(owner % 50).astype(np.int32),
            node=self._random.permutation(base.pods.node).astype(np.int32),
            created=created,
            started=created + 1.0,
        )
        image = np.repeat(np.arange(IMAGES, dtype=np.int32), nodes * IMAGES_PER_NODE // IMAGES)
        images = NodeImages(
            {f"registry.example.com/team/service-{index}:v1.{index}": index for index in range(IMAGES)},
            np.full(IMAGES, 2e8),
            image,
            self._random.integers(0, nodes, len(image)).astype(np.int32),
        )
        self.snapshot: ClusterSnapshot = replace(
            base, taken=START, pods=pods, owners=sets + tops, nodes=replace(base.nodes, images=images)
        )

    def _uid(self) -> str:
        return str(uuid.UUID(bytes=self._random.bytes(16), version=4))

    def _name(self, owner: int) -> str:
        return f"w{owner}-7d4b9c6f5-{''.join(self._random.choice(list('bcdfghjklmnpqrstvwxz2456789'), 5))}"

    def advance(self, seconds: float) -> None:
        """Replace pods; bind those of the last call, and make those of the call before it Ready."""
        before, now = self.snapshot, self.snapshot.taken + seconds
        pods, count = before.pods, len(before.pods)
        gone = self._random.choice(count, round(count * CHURN_AN_HOUR * seconds / 3600.0), replace=False)
        is_bound = pods.node >= 0
        node = np.where(is_bound, pods.node, self._random.integers(0, len(before.nodes), count)).astype(np.int32)
        started = np.where(np.isnan(pods.started), now - 30.0, pods.started)
        ready, created = is_bound.copy(), pods.created.copy()
        names, uids = list(pods.names), list(pods.uids)
        for row in gone.tolist():
            names[row], uids[row] = self._name(int(pods.owner[row])), self._uid()
        node[gone], ready[gone], started[gone], created[gone] = -1, False, np.nan, now - 20.0
        changed: Pods = replace(pods, names=names, uids=uids, node=node, ready=ready, started=started, created=created)
        self.snapshot = replace(before, taken=now, pods=changed)


class ChangingUsage:
    """What cycles read: nodes and pods that use five per cent more or less from one to the next."""

    def __init__(self, *, seed: int = 2) -> None:
        self._random = np.random.default_rng(seed)
        self._base: Floats = np.zeros(0)

    def of(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage of the snapshot, with seven samples."""
        if not len(self._base):
            self._base = self._random.uniform(0.2, 0.8, len(snapshot.nodes)) * snapshot.nodes.cpu_capacity_millicores
        node = self._base * self._random.normal(1.0, 0.05, len(self._base))
        samples = node * self._random.normal(1.0, 0.002, (7, len(node)))
        samples[-1] = node
        pod = snapshot.pods.cpu_request_millicores * self._random.normal(1.0, 0.05, len(snapshot.pods))
        return Usage(
            source="bench",
            at=snapshot.taken,
            window_seconds=300.0,
            node_cpu_millicores=node,
            pod_cpu_millicores=pod,
            sample_times=np.full(samples.shape, snapshot.taken),
            samples=samples,
            sample_seconds=20.0,
            departed_millicores=np.zeros(len(node)),
            problems={},
        )


def day_of(cluster: ChangingCluster, folder: Path, *, entries: int) -> Iterator[tuple[float, int]]:
    """(CPU seconds, bytes) of each entry; the first is the keyframe."""
    journal, size, usage = DayJournal(folder, cluster="bench"), 0, ChangingUsage()
    for number in range(entries):
        if number:
            cluster.advance(EVERY_SECONDS)
        read = ReadUsage(cluster.snapshot, usage.of(cluster.snapshot)) if number % 2 == 0 else None
        began = time.process_time()
        journal.append(cluster.snapshot, evictions=(), alerts=(), read=read)
        took = time.process_time() - began
        (file,) = (folder / "bench").iterdir()
        yield took, file.stat().st_size - size
        size = file.stat().st_size


def main() -> int:
    """Print the figures; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--entries", type=int, default=60, help="of the 1,440 of a day; the rest is extrapolated")
    args = parser.parse_args()
    cluster = ChangingCluster(args.nodes)
    with tempfile.TemporaryDirectory(prefix="journal-bench-") as name:
        folder = Path(name)
        (keyframe, first), *rest = day_of(cluster, folder, entries=args.entries)
        quiet = DayJournal(folder, cluster="quiet")
        quiet.append(cluster.snapshot, evictions=(), alerts=())
        began = time.process_time()
        for _ in range(10):
            quiet.append(cluster.snapshot, evictions=(), alerts=())
        nothing = (time.process_time() - began) / 10
        began = time.process_time()
        end = START + -(-args.entries * EVERY_SECONDS // 300) * 300
        recording = recording_of(folder, cluster="bench", start=START, end=end, today=cluster.snapshot, usage={})
        reading = time.process_time() - began
    assert len(recording.pods) > len(cluster.snapshot.pods)
    day = first + sum(size for _, size in rest) / len(rest) * (DAY_SECONDS / EVERY_SECONDS - 1)
    missed = _say("entry of the day's first snapshot", keyframe, "CPU s", AIM_KEYFRAME_SECONDS)
    missed |= _say(
        "entry after 25 pods of 150,000 came and went",
        1e3 * sum(cpu for cpu, _ in rest) / len(rest),
        "CPU ms",
        AIM_ENTRY_MS,
    )
    missed |= _say("entry without changes", 1e3 * nothing, "CPU ms", AIM_QUIET_MS)
    missed |= _say("the day's first entry", first / 1e6, "MB")
    missed |= _say("a day, 1 % of the pods replaced in an hour", day / 1e6, "MB", MAX_DAY_BYTES / 1e6)
    missed |= _say(f"reading {args.entries} entries", reading, "CPU s")
    return int(missed)


def _say(figure: str, value: float, unit: str, aim: float | None = None) -> bool:
    """Print a figure; True when it misses its aim."""
    missed = aim is not None and not value < aim
    line = {"bench": "journal", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim}
    print(json.dumps({**line, "holds": not missed}), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
