"""A lab that is rebalanced in stories: the real client over HTTP, a real SQLite file, and time that passes when it is
told to. What happened is read from the lab's own log.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab, NodeSpec, Scenario, node, workload
from rebalancer.lab.log import Entry
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.policy import RebalancerPolicy
from tests.programs.cli import policy_for

START = 1_790_000_000.0
RATE_WINDOW = 60.0
TURN_SECONDS = 120.0
"""From one cycle to the next: longer than a rate window and its slack, so that nothing is settling."""
HIGH = 75.0
NO_COOLDOWNS = dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp"), "0s")

TOLERATES_ALL = ({"operator": "Exists"},)


@dataclass(slots=True, kw_only=True)
class Stage:
    """One lab and one run that goes on for many cycles."""

    lab: Lab
    policy: RebalancerPolicy
    settings: Settings
    world: CycleContext
    reports: list[CycleReport] = field(default_factory=list)

    def cycle(self) -> CycleReport:
        """One cycle now; it must have been safe to act."""
        report = run_cycle(self.world, self.policy, dry_run=False).report
        assert report.stopped is None, report.stopped
        self.reports.append(report)
        return report

    def turn(self, seconds: float = TURN_SECONDS) -> CycleReport:
        """Let time pass, then one cycle."""
        self.lab.clock.sleep(seconds)
        return self.cycle()


def stories_policy(lab: Lab, *, own_resources: Iterable[dict[str, str]] = (), **sections: Any) -> dict[str, Any]:
    """The document; `sections` replace top-level ones, `own_resources` are named by queries."""
    said = policy_for(lab.prometheus_url, **{"safety": {"cooldowns": NO_COOLDOWNS}, **sections})
    said["usage"] = {**said["usage"], "rateWindow": f"{RATE_WINDOW:g}s"}
    said["usage"]["prometheus"]["resources"] = list(own_resources)
    return said


def a_scenario(nodes: Iterable[NodeSpec], workloads: Iterable[Any], **fields: Any) -> Scenario:
    """With a short rate window, so that a story is short."""
    return Scenario(nodes=tuple(nodes), workloads=tuple(workloads), rate_window_seconds=RATE_WINDOW, **fields)


@contextmanager
def a_stage(cluster: Scenario, folder: Path, **sections: Any) -> Iterator[Stage]:
    """A run against this cluster. On the way out the run ends, in the way that it does on every way out."""
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        policy = RebalancerPolicy.model_validate(stories_policy(lab, **sections))
        settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}", kubeconfig=str(lab.write_kubeconfig(folder / "config"))
        )
        with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
            yield Stage(lab=lab, policy=policy, settings=settings, world=world)


# ---- small clusters


def a_machine(name: str, **fields: Any) -> NodeSpec:
    """16 cores, nothing used besides its pods."""
    return node(name, **{"cpu": 16, "overhead_cores": 0.0, **fields})


def burner(name: str, on: str, cores: float, **fields: Any) -> Any:
    """A bare pod, which nobody may move. Without a request the scheduler takes its node for empty."""
    return workload(name, namespace="burn", kind="Pod", place={on: 1}, cpu=cores, **fields)


def service(name: str, place: Mapping[str, int], **fields: Any) -> Any:
    """A Deployment in `shop` whose pods use a core and request half of one."""
    usual = {"namespace": "shop", "cpu": 1.0, "cpu_request": "500m", "memory_request": "256Mi"}
    return workload(name, **{**usual, "place": dict(place), **fields})


# ---- what the reports say


def codes(reports: CycleReport | Iterable[CycleReport], prefix: str = "") -> set[str]:
    """Of the pods with this prefix that were refused: the codes."""
    several = [reports] if isinstance(reports, CycleReport) else reports
    return {str(each.code) for report in several for each in report.refusals if each.name.startswith(prefix)}


def messages(report: CycleReport, prefix: str) -> set[str]:
    """Of the pods with this prefix that were refused: the sentences."""
    return {each.message for each in report.refusals if each.name.startswith(prefix)}


# ---- what the log says


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One eviction, and the pod that took the evicted one's place."""

    at: float
    service: str
    uid: str
    """Of the pod that was evicted."""
    new_uid: str
    """Of its replacement; empty while there is none."""
    source: str
    target: str
    """Empty while the replacement waits."""
    ready_at: float | None


def service_of(entry: Entry) -> str:
    """`cart-7d9f-x2x2x` (a Deployment's) is of `cart`, and so is `cart-0`."""
    parts = entry.name.split("-")
    return "-".join(parts[:-1]) if parts[-1].isdigit() and len(parts[-1]) < 3 else "-".join(parts[:-2])


def evicted(log: Iterable[Entry]) -> list[Entry]:
    return [each for each in log if each.event == "eviction" and each.code == 201 and not each.dry_run]


def moves(log: Iterable[Entry]) -> list[Moved]:
    """Every eviction with the first new pod of its owner afterwards, oldest first; only for labs in which nothing else
    makes pods."""
    entries = list(log)
    uids = {each.uid for each in evicted(entries)}
    taken: set[str] = set()
    found = []
    for at, leaving in enumerate(entries):
        if leaving.event != "terminating" or leaving.uid not in uids:
            continue
        name, new = service_of(leaving), None
        for each in entries[at:]:
            if each.event == "created" and service_of(each) == name and each.uid not in taken:
                new = each.uid
                taken.add(new)
                break
        target = next((each.node for each in entries[at:] if each.event == "bound" and each.uid == new), "")
        ready = next((each.at for each in entries[at:] if each.event == "ready" and each.uid == new), None)
        found.append(
            Moved(
                at=leaving.at,
                service=name,
                uid=leaving.uid,
                new_uid=new or "",
                source=leaving.node,
                target=target,
                ready_at=ready,
            )
        )
    assert len(found) == len(uids)
    return found


def returned(log: Iterable[Entry]) -> list[Moved]:
    return [each for each in moves(log) if each.source == each.target]


def to_and_fro(log: Iterable[Entry]) -> list[tuple[Moved, Moved]]:
    """Two moves in a row of the same replica of a service, the second of which undid the first."""
    moved = moves(log)
    by_uid = {each.uid: each for each in moved}
    pairs = [(each, by_uid[each.new_uid]) for each in moved if each.new_uid in by_uid]
    return [(one, two) for one, two in pairs if one.source == two.target != one.target]


def most_in_any_window(times: Iterable[float], seconds: float) -> int:
    at = sorted(times)
    return max((sum(start <= one < start + seconds for one in at) for start in at), default=0)


def most_out_at_once(log: Iterable[Entry], name: str) -> int:
    """Of a service's pods: how many had to go at the same time, without a replacement that is Ready."""
    out = most = 0
    for entry in log:
        if service_of(entry) == name:
            out += {"terminating": 1, "ready": -1}.get(entry.event, 0)
            most = max(most, out)
    return most


# ---- taints


def taints_on(lab: Lab, name: str) -> list[tuple[str, str, str]]:
    """(key, value, effect) of everything that is on a node now."""
    with lab.cluster.lock:
        taints = lab.cluster.store.get("nodes", "", name)["spec"].get("taints") or ()
    return [(each["key"], each.get("value", ""), each["effect"]) for each in taints]


def ours_on(lab: Lab) -> dict[str, str]:
    """Node -> value of our taint that is on it now."""
    names = [each["metadata"]["name"] for each in lab.cluster.nodes()]
    return {name: value for name in names for key, value, _ in taints_on(lab, name) if key == SOFT_TAINT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """For how long a node had our taint."""

    node: str
    value: str
    start: float
    end: float | None
    """None while it is there."""


def stints(log: Iterable[Entry]) -> list[Stint]:
    """All of ours, from the log."""
    begun: dict[str, Entry] = {}
    found = []
    for each in log:
        if each.key != SOFT_TAINT:
            continue
        if each.event == "untainted":
            began = begun.pop(each.node)
            found.append(Stint(node=each.node, value=began.value, start=began.at, end=each.at))
        else:
            begun[each.node] = each
    found += [Stint(node=each.node, value=each.value, start=each.at, end=None) for each in begun.values()]
    return sorted(found, key=lambda each: (each.start, each.node))


def most_tainted_at_once(log: Iterable[Entry], names: Iterable[str]) -> int:
    """How many of these nodes had our taint at the same moment, ever."""
    watched, now, most = set(names), set[str](), 0
    for each in log:
        if each.key == SOFT_TAINT and each.node in watched:
            (now.add if each.event == "tainted" else now.discard)(each.node)
            most = max(most, len(now))
    return most
