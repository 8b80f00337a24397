"""The cluster of the day: three zones, some sixty services, and everything that happens to them in 24 hours.

All of it is drawn from the seed: what services request and use, where their pods are at midnight, which nodes are
replaced, when services roll out and are resized. See docs/day-benchmark.md.
"""

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from rebalancer.lab import CpuModel, HpaSpec, NodeSpec, PdbSpec, Scenario, WorkloadSpec, node, workload
from rebalancer.lab.scenarios.steps import (
    AddNode,
    AddWorkload,
    DrainNode,
    FailZone,
    RemoveNode,
    Resize,
    RestoreZone,
    RollOut,
    Step,
    Taint,
)

HOUR = 3600.0
CORES, MEMORY = 16.0, "64Gi"
ZONES = ("a", "b", "c")
POOL = "general"
GUARDED = "shop/guarded-*"
"""Pods whose eviction a webhook refuses."""
OTHER_SCHEDULER = "volcano"
SPOT_NOTICE = "aws-node-termination-handler/spot-itn"
NOTICE_SECONDS = 120.0
PERIOD_SECONDS = 300.0
"""From one cycle to the next."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much there is of what."""

    nodes: int = 48
    hours: float = 24.0
    greedy: int = 7
    """Services whose pods use far more than they request."""
    ordinary: int = 30
    idle: int = 8
    """Services whose pods request far more than they use."""
    shared: int = 6
    """Services whose Ready pods share their load."""
    scaled: int = 6
    """The same, with a HorizontalPodAutoscaler."""
    sets: int = 4
    """StatefulSets."""
    pairs: int = 24
    """Services of two replicas that use more than they request and start slowly."""
    cron_jobs: int = 6
    pending: int = 12
    """Pods of another scheduler, which never places them."""
    rollouts: int = 12
    resizes: int = 8
    outage_hour: float = 5.0
    outage_hours: float = 0.75
    load: float = 0.38
    """CPU that all services use on average over the day, as a share of the nodes' capacity."""
    replaced: float = 0.1
    """Share of the nodes that are replaced in a day."""
    storms: int = 2
    """Times a day that spot nodes are reclaimed."""
    reclaimed: int = 6
    """Nodes of each storm."""


SMALL = Size(
    nodes=9,
    hours=1.0,
    greedy=2,
    ordinary=5,
    idle=1,
    shared=1,
    scaled=1,
    sets=1,
    pairs=0,
    cron_jobs=2,
    pending=2,
    rollouts=1,
    resizes=1,
    outage_hour=0.4,
    outage_hours=0.2,
    load=0.5,
    replaced=0.2,
    storms=1,
    reclaimed=2,
)
"""For tests."""


def make(seed: int, size: Size) -> Scenario:
    """The scenario of a seed."""
    random = np.random.default_rng([seed, size.nodes])
    nodes = [_node(number) for number in range(size.nodes)]
    services = _services(random, size)
    return Scenario(
        name=f"day-{seed}",
        nodes=tuple(nodes),
        workloads=(*_placed(random, nodes, services), *_everywhere(), *_batch(random, size)),
        steps=tuple(_steps(random, size, nodes, services)),
        start_seconds=30.0,
        stop_seconds=10.0,
        anchor_hour=0.0,
        history_days=0.0,
    )


def _node(number: int) -> NodeSpec:
    zone = ZONES[number % len(ZONES)]
    return node(f"node-{number:03d}", cpu=CORES, memory=MEMORY, pool=POOL, zone=zone, reserved_cores=0.2)


# ---- services


def _services(random: np.random.Generator, size: Size) -> list[WorkloadSpec]:
    """Without places. Sizes are those of 48 nodes; a smaller cluster has fewer replicas."""
    scale = size.nodes / 48 * 60 / (size.greedy + size.ordinary + size.idle + size.shared + size.scaled)

    def replicas(low: int, high: int) -> int:
        return max(2, round(int(random.integers(low, high + 1)) * min(scale, 1.5)))

    def curve(base: float, **fields: float) -> CpuModel:
        """By day, with a peak in the hours of work; a fifth of the services has it at night."""
        peak = float(random.uniform(0.0, 4.0) if random.random() < 0.2 else random.uniform(10.0, 17.0))
        amplitude, noise = float(random.uniform(0.25, 0.5)), float(random.uniform(0.08, 0.25))
        return CpuModel(**{"base": base, "amplitude": amplitude, "peak_hour": peak, "noise": noise, **fields})

    def common(**fields: object) -> dict[str, object]:
        start = float(random.choice([20.0, 40.0, 90.0]))
        return {"namespace": "shop", "memory_request": "768Mi", "start_seconds": start, **fields}

    found = []
    for number in range(size.greedy):
        cpu, budget = curve(float(random.uniform(1.5, 2.3))), PdbSpec(max_unavailable="25%")
        fields = common(replicas=replicas(8, 16), cpu=cpu, cpu_request="600m", pdb=budget)
        found.append(workload("guarded-web" if number == 0 else f"greedy-{number}", **fields))
    for number in range(size.ordinary):
        requested = float(random.uniform(0.3, 1.0))
        cpu = curve(requested * float(random.lognormal(-0.4, 0.45)))
        budget = PdbSpec(max_unavailable=1) if random.random() < 0.5 else None
        fields = common(replicas=replicas(6, 18), cpu=cpu, cpu_request=f"{requested:.2f}", pdb=budget)
        found.append(workload(f"app-{number}", **fields))
    for number in range(size.idle):
        fields = common(replicas=replicas(8, 16), cpu=curve(0.15), cpu_request="1", pdb=PdbSpec(min_available="75%"))
        found.append(workload(f"idle-{number}", **fields))
    for number in range(size.shared + size.scaled):
        pods, each = replicas(6, 12), float(random.uniform(0.4, 0.9))
        is_scaled = number >= size.shared
        scaler = HpaSpec(min_replicas=max(2, pods // 2), max_replicas=2 * pods, utilization=70) if is_scaled else None
        fields = common(replicas=pods, cpu=curve(0.0, total=pods * each), cpu_request=f"{each / 0.7:.2f}", hpa=scaler)
        name = f"scaled-{number - size.shared}" if is_scaled else f"shared-{number}"
        found.append(workload(name, pdb=PdbSpec(max_unavailable="25%"), **fields))
    for number in range(size.sets):
        fields = common(kind="StatefulSet", replicas=3, cpu=curve(0.8), cpu_request="1", pdb=PdbSpec(max_unavailable=1))
        found.append(workload(f"store-{number}", **fields))
    for number in range(size.pairs):
        cpu, slow = curve(float(random.uniform(1.2, 2.0))), {"start_seconds": 180.0}
        fields = {**common(replicas=2, cpu=cpu, cpu_request="600m"), **slow}
        found.append(workload(f"pair-{number}", **fields))
    return _scaled(found, size.load * size.nodes * CORES)


def _scaled(services: list[WorkloadSpec], cores: float) -> list[WorkloadSpec]:
    """The same services, using `cores` in all."""
    now = sum(each.cpu.base * (each.replicas or 0) if each.cpu.total is None else each.cpu.total for each in services)

    def scaled(spec: WorkloadSpec) -> WorkloadSpec:
        total = None if spec.cpu.total is None else spec.cpu.total * cores / now
        return replace(spec, cpu=replace(spec.cpu, base=spec.cpu.base * cores / now, total=total))

    return [scaled(each) for each in services]


def _placed(random: np.random.Generator, nodes: list[NodeSpec], services: list[WorkloadSpec]) -> list[WorkloadSpec]:
    """Each pod on one of the three nodes with the fewest requests, in a random order of the pods, as deployments over
    months leave them: real CPU plays no part."""
    requested = np.zeros(len(nodes))
    places: list[dict[str, int]] = [{} for _ in services]
    pods = np.repeat(np.arange(len(services)), [each.replicas or 0 for each in services])
    for at in random.permutation(pods).tolist():
        chosen = int(random.choice(np.argsort(requested, kind="stable")[:3]))
        requested[chosen] += _cores(services[at].cpu_request)
        name = nodes[chosen].name
        places[at][name] = places[at].get(name, 0) + 1
    return [replace(each, place=place) for each, place in zip(services, places, strict=True)]


def _everywhere() -> list[WorkloadSpec]:
    agents = {"namespace": "kube-system", "kind": "DaemonSet", "tolerations": ({"operator": "Exists"},)}
    return [
        workload("agent", cpu=CpuModel(base=0.15, noise=0.1), cpu_request="100m", **agents),
        workload("logs", cpu=CpuModel(base=0.15, noise=0.3), cpu_request="100m", **agents),
    ]


def _batch(random: np.random.Generator, size: Size) -> list[WorkloadSpec]:
    """CronJobs, and pods of another scheduler."""
    found = []
    for number in range(size.cron_jobs):
        minute, every = int(random.integers(0, 60)), int(random.choice([20, 30, 60]))
        schedule = f"*/{every} * * * *" if every < 60 else f"{minute} * * * *"
        found.append(
            workload(
                f"report-{number}",
                namespace="batch",
                kind="CronJob",
                schedule=schedule,
                replicas=int(random.integers(1, 4)),
                run_seconds=float(random.uniform(300.0, 1200.0)),
                cpu=CpuModel(base=float(random.uniform(1.0, 2.5)), noise=0.2),
                cpu_request="500m",
                memory_request="512Mi",
            )
        )
    return found


# ---- what happens


def _steps(random: np.random.Generator, size: Size, nodes: list[NodeSpec], services: list[WorkloadSpec]) -> list[Step]:
    replacements = _replacements(random, size, nodes)
    return [
        *replacements,
        *_outage(size),
        *_changes(random, size, services),
        *_strangers(random, size),
        *_storms(random, size, nodes, replacements),
    ]


def _replacements(random: np.random.Generator, size: Size, nodes: list[NodeSpec]) -> list[Step]:
    """Nodes that are replaced: the new one joins, the old one is drained; every fourth vanishes without notice."""
    count = max(1, round(size.replaced * size.nodes * size.hours / 24.0)) if size.hours >= 24 else 1
    leaving = random.choice(len(nodes), size=count, replace=False)
    found: list[Step] = []
    for number, at in enumerate(leaving.tolist()):
        when = float(random.uniform(0.05, 0.95)) * size.hours * HOUR
        new = replace(nodes[at], name=f"node-{size.nodes + number:03d}")
        found.append(AddNode(at_seconds=when, node=new))
        if number % 4 == 3:
            found.append(RemoveNode(at_seconds=when + 60.0, node=nodes[at].name))
        else:
            found.append(DrainNode(at_seconds=when + 300.0, node=nodes[at].name, within_seconds=1800.0))
    return found


def _storms(random: np.random.Generator, size: Size, nodes: list[NodeSpec], replacements: list[Step]) -> list[Step]:
    """Spot nodes that all get their notice at once and vanish two minutes later, when others join. A cycle begins in
    the middle of the notice: at other times it would know of no notice."""
    gone = {each.node for each in replacements if isinstance(each, DrainNode | RemoveNode)}
    left = [each for each in nodes if each.name not in gone]
    storms = max(1, round(size.storms * size.hours / 24.0))
    chosen = random.choice(len(left), size=(storms, size.reclaimed), replace=False)
    number = size.nodes + len(gone)
    found: list[Step] = []
    for storm in chosen.tolist():
        cycle = round(float(random.uniform(0.1, 0.9)) * size.hours * HOUR / PERIOD_SECONDS) * PERIOD_SECONDS
        when = cycle - NOTICE_SECONDS / 2
        for at in storm:
            old, new = left[at], replace(left[at], name=f"node-{number:03d}")
            found.append(Taint(at_seconds=when, node=old.name, key=SPOT_NOTICE))
            found.append(RemoveNode(at_seconds=when + NOTICE_SECONDS, node=old.name))
            found.append(AddNode(at_seconds=when + NOTICE_SECONDS, node=new))
            number += 1
    return found


def _outage(size: Size) -> list[Step]:
    began = size.outage_hour * HOUR
    return [
        FailZone(at_seconds=began, zone=ZONES[-1]),
        RestoreZone(at_seconds=began + size.outage_hours * HOUR, zone=ZONES[-1]),
    ]


def _changes(random: np.random.Generator, size: Size, services: list[WorkloadSpec]) -> list[Step]:
    """Rollouts in the hours of work, and resizes at any time: requests get nearer to what is used."""
    deployed = [each for each in services if each.kind == "Deployment"]
    found: list[Step] = []
    for each in random.choice(len(deployed), size=size.rollouts, replace=False).tolist():
        at = float(random.uniform(0.35, 0.75)) * size.hours * HOUR
        found.append(RollOut(at_seconds=at, namespace="shop", workload=deployed[each].name))
    plain = [each for each in deployed if each.cpu.total is None and not each.name.startswith("greedy")]
    for at_service in random.choice(len(plain), size=size.resizes, replace=False).tolist():
        spec, at = plain[at_service], float(random.uniform(0.1, 0.9)) * size.hours * HOUR
        requests = {"cpu": f"{(_cores(spec.cpu_request) + spec.cpu.base) / 2:.2f}"}
        found.append(Resize(at_seconds=at, namespace="shop", workload=spec.name, requests=requests))
    return found


def _strangers(random: np.random.Generator, size: Size) -> list[Step]:
    """Pods that another scheduler is to place, half of them from the second hour on, the others later."""
    found: list[Step] = []
    for number, part in enumerate((size.pending // 2, size.pending - size.pending // 2)):
        at = float(random.uniform(0.05, 0.3) + 0.3 * number) * size.hours * HOUR
        pods = workload(
            f"training-{number}",
            namespace="batch",
            replicas=part,
            cpu_request="2",
            memory_request="2Gi",
            scheduler_name=OTHER_SCHEDULER,
            age_seconds=0.0,
        )
        found.append(AddWorkload(at_seconds=at, workload=pods))
    return found


def _cores(request: str) -> float:
    return float(request.removesuffix("m")) / 1000.0 if request.endswith("m") else float(request)
