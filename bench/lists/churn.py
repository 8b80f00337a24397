"""Whether memory stays flat while pods come and go: `python -m bench churn [--events N] [--pods N]`.

Events of pods that come, change and go are applied to the watch's store, with new names, owners and templates all the
time, and a snapshot's columns are taken every 10,000 events, as cycles do. The figure is resident memory at the end
over resident memory after a tenth of the events.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator

import msgspec

from bench.lists.cache import memory_mib
from rebalancer.kube.snapshot.records import Pod, PodStatus
from rebalancer.kube.watch.rows import PodRows
from rebalancer.model.notation.decoding import convert

EVENTS, PODS, GROWTH_AIM = 1_000_000, 20_000, 1.05
SNAPSHOT_EVERY = 10_000
NODES = 500


def events(count: int, pods: int, *, seed: int = 1) -> Iterator[tuple[bool, Pod]]:
    """(gone, pod): a pod comes while there are fewer than `pods`; then one goes, or changes, or comes."""
    chance, live = random.Random(seed), list[Pod]()
    for number in range(count):
        draw = chance.random()
        if len(live) < pods or draw < 0.2:
            live.append(_pod(chance, number))
            yield False, live[-1]
            continue
        at = chance.randrange(len(live))
        if draw < 0.4:
            live[at], live[-1] = live[-1], live[at]
            yield True, live.pop()
            continue
        before = live[at]
        live[at] = msgspec.structs.replace(before, status=_status(chance))
        yield False, live[at]


def _pod(chance: random.Random, number: int) -> Pod:
    service = chance.randrange(2000) + number // 100  # services come and go too
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"s{service}",
        "uid": f"o{service}",
        "controller": True,
    }
    return convert(
        {
            "metadata": {
                "name": f"s{service}-{number:x}",
                "namespace": f"team-{service % 300}",
                "uid": f"uid-{number:032x}",
                "labels": {"app": f"s{service}"},
                "ownerReferences": [owner | {"controller": True}],
                "creationTimestamp": "2026-10-02T08:00:00Z",
            },
            "spec": {
                "nodeName": f"n{chance.randrange(NODES)}",
                "containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}],
            },
        },
        Pod,
    )


def _status(chance: random.Random) -> PodStatus:
    ready = {"type": "Ready", "status": chance.choice(("True", "False"))}
    return convert({"phase": "Running", "conditions": [ready]}, PodStatus)


def main() -> int:
    """Measure and print; 1 when the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--pods", type=int, default=PODS)
    args = parser.parse_args()
    rows, first = PodRows(), 0.0
    for done, (gone, pod) in enumerate(events(args.events, args.pods), start=1):
        rows.apply([(gone, pod)])
        if done % SNAPSHOT_EVERY == 0:
            taken = rows.taken()
            taken.columns(nodes={}, namespaces={name: at for at, name in enumerate(taken.namespaces)}, owners={})
        if done == args.events // 10:
            first = memory_mib("VmRSS")
    growth = memory_mib("VmRSS") / first
    line = {
        "bench": "churn",
        "figure": "resident after all events / after a tenth",
        "value": round(growth, 3),
        "unit": "x",
    }
    print(json.dumps({"bench": "churn", "figure": "events", "value": args.events, "unit": "events"}))
    print(json.dumps(line | {"aim": f"<= {GROWTH_AIM:g}", "holds": growth <= GROWTH_AIM}))
    return 0 if growth <= GROWTH_AIM else 1


if __name__ == "__main__":
    sys.exit(main())
