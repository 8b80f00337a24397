"""The history of resources besides CPU: days and folders of their own, which never disturb those of CPU."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import NullProgress
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.measured.history import MIB, SLOTS, History
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.store.blocks import BlockStore
from tests.builders import GIB, a_node, a_pod, a_policy, cluster, usage_of
from tests.forecasting.builders import BEFORE, NOON, a_snapshot, lines
from tests.prometheus.builders import fake_prometheus
from tests.prometheus.fakes import DAY, OWN, START, Clock, Line, Past, line

RESOURCES = [
    {"name": "memory", "node": "node:memory", "capacity": "node:memory:whole", "pod": "pod:memory"},
    {"name": "disk/busy", "node": "node:disk", "pod": "pod:disk"},
    {"name": "unused", "node": "node:unused", "pod": "pod:unused"},
]


def amounts(metric: str, node: float, pod: float) -> list[Line]:
    return [
        line(f"node:{metric}", node, node="a", first=BEFORE, end=2 * SLOTS),
        line(f"pod:{metric}", pod, namespace="shop", pod="web-0", node="a", first=BEFORE, end=2 * SLOTS),
    ]


@dataclass
class Histories:
    """The keepers of a policy over a Prometheus of our own words."""

    past: Past
    folder: Path
    thresholds: Sequence[str] = ("disk/busy",)
    per_hour: int = 600
    resources: Sequence[Any] = field(default_factory=lambda: RESOURCES)

    @contextmanager
    def keepers(self) -> Iterator[dict[str, HistoryKeeper]]:
        with ExitStack() as stack:
            fake = stack.enter_context(fake_prometheus(self.past))
            marks = {name: {"high": 80, "target": 65, "low": 40} for name in self.thresholds}
            thresholds = {"high": 75, "target": 65, "low": 50, "resources": marks}
            prometheus = {
                "url": fake.url,
                **OWN,
                "history": {"queriesPerHour": self.per_hour},
                "resources": list(self.resources),
            }
            policy = a_policy(
                cluster="one",
                pools=[{"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": thresholds}],
                usage={"prometheus": prometheus},
            )
            settings = Settings(history_dir=str(self.folder))
            found = stack.enter_context(
                history_keepers(policy, settings, progress=NullProgress(), clock=self.past.clock)
            )
            yield dict(found)


def histories(folder: Path, more: Sequence[Line], **fields: Any) -> Histories:
    return Histories(Past(lines=[*lines(), *more], clock=Clock(NOON)), folder, **fields)


def pod_of(history: History, day: int, name: str = "shop/web-0") -> float:
    block = history.days[day]
    return float(block.pod_millicores[block.pod_row[name], 0])


def test_each_resource_has_days_of_its_own(tmp_path: Path) -> None:
    more = [*amounts("memory", 3 * GIB, 1.5 * GIB), *amounts("disk", 0.5, 0.25)]
    with histories(tmp_path, more).keepers() as keepers:
        found = {name: keeper.update(a_snapshot()) for name, keeper in keepers.items()}
    assert list(found) == ["cpu", "memory", "disk/busy"], "without thresholds a resource has no history"
    assert [len(each.days) for each in found.values()] == [9, 9, 9]
    assert [each.notes for each in found.values()] == [(), (), ()]
    assert pod_of(found["cpu"], 3) == pytest.approx(250, rel=1e-4)
    assert pod_of(found["memory"], 3) == pytest.approx(1536, rel=1e-4), "MiB"
    assert pod_of(found["disk/busy"], 3) == pytest.approx(250, rel=1e-4), "thousandths of a node"
    np.testing.assert_allclose(found["memory"].days[0].node_millicores, 3072, rtol=1e-4)
    folders = {each.parent.relative_to(tmp_path / "one").as_posix() for each in tmp_path.rglob("*.day")}
    assert folders == {".", "memory", "disk%2Fbusy"}


def test_without_series_of_memory_cpu_is_as_before(tmp_path: Path) -> None:
    with histories(tmp_path, [], thresholds=(), resources=()).keepers() as keepers:
        cpu, memory = (keepers[name].update(a_snapshot()) for name in ("cpu", "memory"))
    assert (len(cpu.days), cpu.notes) == (9, ())
    assert len(memory.days) == 0
    assert memory.notes, "a note of its own, and no error"


def test_other_resources_leave_half_of_the_queries_to_cpu(tmp_path: Path) -> None:
    with histories(tmp_path, amounts("memory", 3 * GIB, GIB), thresholds=(), per_hour=120).keepers() as keepers:
        cpu, memory = (keepers[name].update(a_snapshot()) for name in ("cpu", "memory"))
        assert len(cpu.days) == 9
        assert len(memory.days) < 9
        assert any("is only read in part yet" in each for each in memory.notes)


def test_old_days_of_a_resource_that_the_policy_no_longer_names_are_deleted(tmp_path: Path) -> None:
    more = [*amounts("memory", 3 * GIB, GIB), *amounts("disk", 0.5, 0.25)]
    made = histories(tmp_path, more)
    with made.keepers() as keepers:
        keepers["disk/busy"].update(a_snapshot())
    made.thresholds = ()
    made.past.clock.at += 20 * 86_400
    with made.keepers() as keepers:
        keepers["cpu"].update(a_snapshot())
    assert list((tmp_path / "one" / "disk%2Fbusy").iterdir()) == []


def test_memory_is_collected_from_cycles_where_no_prometheus_keeps_it(tmp_path: Path) -> None:
    clock = Clock(START)
    keeper = HistoryKeeper(
        source=None,
        blocks=BlockStore(tmp_path, cluster="one", source="observed", resource=MEMORY),
        clock=clock,
        resource=MEMORY,
    )
    nodes, pods = [a_node("a", used=1000.0)], [a_pod("web-0", "a", used=100.0)]
    snapshot = cluster(nodes, pods)
    for used in (2.0, 4.0):
        memory = ResourceUsage(
            node=np.array([used * GIB]),
            capacity=np.array([8.0 * GIB]),
            pod=np.array([used * GIB / 2]),
            samples=np.array([[used * GIB]]),
        )
        keeper.observe(snapshot, usage_of(snapshot, nodes, pods, at=clock.at, resources={MEMORY: memory}))
    keeper.observe(snapshot, usage_of(snapshot, nodes, pods, at=clock.at))
    clock.at = START + 400
    (today,) = keeper.update(snapshot).days
    assert today.day == DAY
    assert float(today.node_millicores[0, 0]) == pytest.approx(3 * GIB / MIB, rel=1e-4)
    assert float(today.pod_millicores[0, 0]) == pytest.approx(1.5 * GIB / MIB, rel=1e-4)
