"""Nine days of kube-state-metrics, node_exporter and cAdvisor in a Prometheus: a recording is what was written."""

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import requests

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cycle.context import NullProgress
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.model.recordings.recording import Recording
from tests.builders import GIB, a_budget, a_node, a_pod, a_policy, cluster
from tests.prometheus.builders import Asked, Reply, fake_prometheus
from tests.prometheus.fakes import Clock, too_long
from tests.real.builders.ksm_history import (
    INF,
    KsmBudget,
    KsmNode,
    KsmPod,
    firing,
    gauge,
    ksm_history,
    rising,
    series,
    there,
)
from tests.real.builders.prometheus_days import SPACING_SECONDS, LongSeries, fill_days
from tests.real.servers.prometheus import PrometheusServer, prometheus_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NOW = time.time()
HOUR, WEEK = 3600.0, 7 * DAY_SECONDS
UNTIL = NOW + HOUR
"""The last sample: other tests may run for long between this line and the tests below."""
END = (NOW - 60.0) // STEP_SECONDS * STEP_SECONDS
START = END - WEEK
FIRST_DAY = int(NOW // DAY_SECONDS) - 9
SLACK = SPACING_SECONDS + 61.0
"""The last sample is up to a spacing old; the end is read to the minute."""

WEB, OLD, LEGACY, DB = ("ReplicaSet", "web-7d9f"), ("ReplicaSet", "web-6c8b"), ("ReplicaSet", "cart-55aa"), "db"
ROLLED_OUT, EVICTED = START + 50 * HOUR, START + 100 * HOUR + 17 * 60
BLINK = START + 31 * HOUR + 600.0
"""Between two ends of windows."""
MOVED, PENDING = START + 70 * HOUR, 12 * 60.0
AWAY = (START + 12 * HOUR, START + 12.5 * HOUR)
GONE_NODE, NEW_NODE = START + 30 * HOUR, START + 90 * HOUR

TAINTED = (START + 60 * HOUR, START + 61 * HOUR)
NODES = [
    *(
        KsmNode(
            name=f"pool-a-{index}",
            address=f"10.0.0.{index}",
            not_ready=[(START + 20 * HOUR, START + 21 * HOUR)] if index == 2 else (),
            soft_tainted=[TAINTED] if index == 0 else (),
            cordoned=[(START + 40 * HOUR, START + 44 * HOUR)] if index == 3 else (),
            drained=[(EVICTED - 600.0, EVICTED + HOUR)] if index == 1 else (),
        )
        for index in range(4)
    ),
    KsmNode(
        name="pool-b-gone",
        address="10.0.0.9",
        created=START - 100 * HOUR,
        gone=GONE_NODE,
        cpu_cores=8,
        labels={"label_disk": "ssd"},
        taints=[("dedicated", "batch", "NoSchedule"), ("node.kubernetes.io/unschedulable", "", "NoSchedule")],
    ),
    KsmNode(name="pool-a-back", address="10.0.0.11", created=START - 100 * HOUR, gone=AWAY[0]),
    KsmNode(name="pool-a-back", address="10.0.0.11", created=AWAY[1]),
    KsmNode(name="pool-b-new", address="10.0.0.10", created=NEW_NODE, cpu_cores=8),
]
PODS = [
    *(
        KsmPod(name=f"web-6c8b-{at}", uid=f"old-{at}", node=f"pool-a-{at}", owner=OLD, created=START - 200 * HOUR,
               gone=ROLLED_OUT, cpu_cores=0.25)
        for at in range(3)
    ),
    *(
        KsmPod(name=f"web-7d9f-{at}", uid=f"new-{at}", node=f"pool-a-{at}", owner=WEB, created=ROLLED_OUT,
               bound=ROLLED_OUT + PENDING, ready=ROLLED_OUT + PENDING + 30.0, gone=EVICTED + 30.0 if at == 1 else INF)
        for at in range(3)
    ),
    KsmPod(name="web-7d9f-x", uid="new-x", node="pool-b-new", owner=WEB, created=EVICTED, ready=EVICTED + 40.0,
           ready_again=EVICTED + 5 * HOUR),
    KsmPod(name="cart-55aa-q", uid="cart", node="pool-b-gone", owner=LEGACY, created=START - 50 * HOUR, gone=GONE_NODE,
           cpu_cores=1.5, memory_bytes=2 * GIB, priority_class="high"),
    KsmPod(name="db-0", uid="db-before", node="pool-a-0", owner=("StatefulSet", DB), created=START - 99 * HOUR,
           gone=MOVED),
    KsmPod(name="db-0", uid="db-after", node="pool-a-3", owner=("StatefulSet", DB), created=MOVED + 200.0),
    KsmPod(name="report-29001", uid="job", node="pool-a-3", owner=("Job", "report-29001"), created=START + 10 * HOUR,
           finished=START + 11 * HOUR, gone=START + 60 * HOUR),
    KsmPod(name="blink", uid="blink", node="pool-a-2", owner=("Job", "blink"), created=BLINK, finished=BLINK + 1200.0,
           gone=BLINK + 2400.0, cpu_cores=0.75),
    KsmPod(name="failed", uid="failed", node="pool-a-2", owner=("Job", "blink"), created=START + 3 * HOUR,
           finished=START + 5 * HOUR, failed=True, gone=START + 30 * HOUR),
    KsmPod(name="before", uid="before", node="pool-a-0", created=START - 30 * HOUR, gone=START - 3 * HOUR),
]  # fmt: skip
OF_UID = {pod.uid: pod for pod in PODS}
BUDGET = KsmBudget(name="web", healthy=[(0.0, 2), (START + 80 * HOUR, 3)])
ALERT = (START + 25 * HOUR, START + 25.5 * HOUR)


def cores(pod: KsmPod) -> float:
    return 0.1 + (sum(map(ord, pod.uid)) % 7) / 10


def hourly(pod: KsmPod, hour: Floats) -> Floats:
    return cores(pod) * (1.0 + 0.5 * (hour % 24 >= 8))


def stack() -> list[LongSeries]:
    since = FIRST_DAY * DAY_SECONDS
    parents = {
        (WEB[0], "shop", WEB[1]): ("Deployment", "web"),
        (LEGACY[0], "shop", LEGACY[1]): ("Deployment", "cart"),
        ("Job", "shop", "report-29001"): ("CronJob", "report"),
        ("Job", "shop", "blink"): ("Workflow", "short"),
    }
    out = ksm_history(pods=PODS, nodes=NODES, budgets=[BUDGET], parents=parents, cluster="prod")
    out += ksm_history(
        pods=[KsmPod(name="web-7d9f-0", uid="stranger", node="pool-a-0", owner=WEB, created=START)],
        nodes=[KsmNode(name="pool-a-0", address="10.7.0.1"), KsmNode(name="stranger", address="10.7.0.2")],
        budgets=[KsmBudget(name="web", healthy=[(0.0, 9)])],
        cluster="staging",
    )
    out.append(firing({"alertname": "NodeHot", "node": "pool-a-1"}, [ALERT]))
    evictions = {"pool": "general", "outcome": "evicted", "code": "", "job": "rebalancer"}
    out.append(rising("rebalancer_evictions_total", evictions, [EVICTED + 20.0], since=since))
    for node in NODES:
        here = [pod for pod in PODS if pod.node == node.name]
        instance = {"instance": f"{node.address}:9100", "job": "node-exporter"}

        def busy(hour: Floats, here: list[KsmPod] = here) -> Floats:
            at = since + hour * HOUR
            on = [hourly(each, hour) * ((each.created <= at) & (at < min(each.finished, each.gone))) for each in here]
            return 0.2 + np.sum(on, axis=0) if on else np.full(len(hour), 0.2)

        out.append(series("node_cpu_seconds_total", {**instance, "cpu": "0", "mode": "user"}, busy, node, since))
        out.append(gauge("node_memory_MemTotal_bytes", instance, node.memory_bytes, there(node)))
        out.append(gauge("node_memory_MemAvailable_bytes", instance, 0.75 * node.memory_bytes, there(node)))
    for pod in PODS:
        labels = {"namespace": pod.namespace, "pod": pod.name, "node": pod.node, "container": "app"}
        used = lambda hour, pod=pod: hourly(pod, hour)  # noqa: E731
        out.append(series("container_cpu_usage_seconds_total", labels, used, pod, since))
        out.append(gauge("container_memory_working_set_bytes", labels, 0.5 * GIB, there(pod)))
    return out


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    def fill(data: Path) -> None:
        fill_days(data, stack(), days=range(FIRST_DAY, FIRST_DAY + 11), until=UNTIL)

    with prometheus_server([], fill=fill) as running:
        yield running


@pytest.fixture(scope="module")
def weak_server() -> Iterator[PrometheusServer]:
    """It refuses queries over many samples."""

    def fill(data: Path) -> None:
        fill_days(data, stack(), days=range(FIRST_DAY + 7, FIRST_DAY + 11), until=UNTIL)

    with prometheus_server([], fill=fill, flags=["--query.max-samples=2500"]) as running:
        yield running


@pytest.fixture(scope="module")
def today() -> ClusterSnapshot:
    made = [
        a_pod(pod.name, pod.node, owner=pod.owner[1], owner_kind=pod.owner[0], cpu=500.0, priority=7,
              template={"gracePeriod": 30, "nodeSelector": {"of": pod.owner[1]}})
        for pod in PODS
        if pod.gone == INF
    ]  # fmt: skip
    deployment = Owner(kind="Deployment", namespace="shop", name="web", uid="d")
    report = Owner(kind="CronJob", namespace="shop", name="report", uid="c")
    replica_set = Owner(kind=WEB[0], namespace="shop", name=WEB[1], uid="rs", parent=0)
    here = [node for node in NODES if node.gone == INF]
    found = cluster(
        [
            a_node(
                node.name,
                cpu=node.cpu_cores * 1000,
                memory=node.memory_bytes,
                labels={"pool": node.name[:6], "disk": "hdd"},
            )
            for node in here
        ],
        made,
        owners=[deployment, report, replica_set],
        budgets=[a_budget("web", "web", 1)],
        priority_classes={"high": 1000},
    )  # fmt: skip
    uids = {(pod.name): pod.uid for pod in PODS if pod.gone == INF}
    return replace(
        found,
        nodes=replace(
            found.nodes,
            addresses=tuple((node.address,) for node in here),
            created=np.array([node.created for node in here]),
        ),
        pods=replace(found.pods, uids=[uids[name] for name in found.pods.names]),
    )


@pytest.fixture(scope="module")
def recording(server: PrometheusServer, today: ClusterSnapshot, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    policy = a_policy(usage={"prometheus": {"url": server.url}})
    settings = Settings(history_dir=str(tmp_path_factory.mktemp("history")))
    return read_recording(
        policy, settings, since_seconds=WEEK, until=END, progress=NullProgress(), clock=Clock(time.time()), today=today
    )


def row(recording: Recording, uid: str) -> int:
    return recording.pods.uids.index(uid)


def test_every_pod_of_the_week_is_there_with_its_node_and_times(recording: Recording) -> None:
    pods = recording.pods
    assert (recording.start, recording.end) == (START, END)
    assert set(pods.uids) == {pod.uid for pod in PODS if pod.gone > START}
    for pod in PODS:
        if pod.gone <= START:
            continue
        at = row(recording, pod.uid)
        assert pods.names[at] == pod.name
        assert recording.nodes.names[pods.node[at]] == pod.node
        assert pods.created[at] == pytest.approx(pod.created, abs=1.0)
        bound = pod.created if pod.bound is None else pod.bound
        assert pods.bound[at] == pytest.approx(bound, abs=1.0)
        ready = bound if pod.ready is None else pod.ready
        assert pods.ready[at] == pytest.approx(ready, abs=1.0)
        ended = min(pod.finished, pod.gone)
        assert pods.ended[at] == ended if ended == INF else pods.ended[at] == pytest.approx(ended, abs=SLACK)


def test_templates_are_those_of_todays_pods_with_the_recorded_requests(recording: Recording) -> None:
    def template(uid: str) -> object:
        return recording.pod_templates[int(recording.pods.template[row(recording, uid)])]

    today, old, cart = template("new-0"), template("old-1"), template("cart")
    assert (today.cpu_request_millicores, today.node_selector) == (500.0, {"of": WEB[1]})  # type: ignore[attr-defined]
    assert (old.cpu_request_millicores, old.node_selector) == (250.0, {"of": WEB[1]})  # type: ignore[attr-defined]
    assert (cart.cpu_request_millicores, cart.memory_request_bytes) == (1500.0, 2 * GIB)  # type: ignore[attr-defined]
    assert recording.pods.priority[row(recording, "cart")] == 1000
    assert template("db-before") == template("db-after")
    texts = {gap.text: gap.pods for gap in recording.gaps}
    assert next(count for text, count in texts.items() if "of the same service" in text) == 3
    assert next(count for text, count in texts.items() if "without any pod today" in text) == 4
    assert (template("blink").cpu_request_millicores, template("failed").cpu_request_millicores) == (750.0, 500.0)  # type: ignore[attr-defined]


def test_owners_and_their_parents_are_known_also_of_replica_sets_that_are_gone(recording: Recording) -> None:
    def service(uid: str) -> tuple[str, str]:
        owner = recording.owners[recording.pods.owner[row(recording, uid)]]
        while owner.parent >= 0:
            owner = recording.owners[owner.parent]
        return owner.kind, owner.name

    assert service("new-0") == service("old-0") == ("Deployment", "web")  # the old one by its name
    assert service("cart") == ("Deployment", "cart")
    assert service("job") == ("CronJob", "report")
    assert service("blink") == ("Workflow", "short")
    assert service("db-before") == ("StatefulSet", "db")


def test_nodes_join_leave_fail_and_are_cordoned_when_they_were(recording: Recording) -> None:
    names, middles = list(recording.nodes.names), START + (np.arange(recording.steps) + 0.5) * STEP_SECONDS
    gone, new = names.index("pool-b-gone"), names.index("pool-b-new")
    assert recording.node_left[gone] == pytest.approx(GONE_NODE, abs=SLACK)
    assert recording.node_joined[gone] == -np.inf
    assert recording.node_joined[new] == pytest.approx(NEW_NODE, abs=1.0)
    assert np.isinf(np.delete(recording.node_left, gone)).all()

    def steps(row: np.ndarray) -> float:
        return float(np.count_nonzero(row)) * STEP_SECONDS / HOUR

    assert steps(~recording.node_ready[names.index("pool-a-2")]) == pytest.approx(1.0, abs=0.1)
    assert steps(recording.node_unschedulable[names.index("pool-a-3")]) == pytest.approx(4.0, abs=0.1)
    back = names.index("pool-a-back")
    assert recording.node_joined[back] == -np.inf
    away = (AWAY[0] + SLACK < middles) & (middles < AWAY[1])
    assert away.sum() >= 3
    assert recording.node_unschedulable[back][away].all()
    assert steps(recording.node_unschedulable[back]) == pytest.approx(0.5, abs=0.15)
    assert steps(~recording.node_ready[back]) == pytest.approx(0.5, abs=0.15)
    assert np.isnan(recording.usage[CPU].node[back][away]).all()
    # a cordon of rebalancer's own is none
    assert not recording.node_unschedulable[names.index("pool-a-1")].any()
    assert not recording.node_ready[new][middles < NEW_NODE].any()
    assert recording.nodes.cpu_capacity_millicores[gone] == 8000.0
    assert recording.nodes.labels[gone] == {"kubernetes.io/hostname": "pool-b-gone", "pool": "pool-b", "disk": "ssd"}
    assert [taint.key for taint in recording.nodes.taints[gone]] == ["dedicated"]


def test_usage_is_that_of_each_pod_while_it_was_there_and_of_its_node(recording: Recording) -> None:
    usage, offsets = recording.usage[CPU], recording.usage[CPU].pod_start
    for uid in ("new-0", "old-1", "cart", "db-before", "db-after"):
        pod, at = OF_UID[uid], row(recording, uid)
        values = usage.pod_values[offsets[at] : offsets[at + 1]]
        ends = START + (usage.pod_first[at] + np.arange(len(values)) + 1) * STEP_SECONDS
        known = np.isfinite(values)
        assert known.mean() > 0.97
        hours = (ends - STEP_SECONDS / 2 - FIRST_DAY * DAY_SECONDS) // HOUR
        wanted = 1000.0 * hourly(pod, hours)
        assert np.mean(np.isclose(values[known], wanted[known], rtol=0.02)) > 0.9
    node = usage.node[list(recording.nodes.names).index("pool-b-gone")]
    hours = int(30 * HOUR / STEP_SECONDS)
    assert np.isfinite(node[: hours - 2]).all()
    assert np.isnan(node[hours + 2 :]).all()
    memory = recording.usage[MEMORY]
    assert np.nanmedian(memory.pod_values) == pytest.approx(0.5 * GIB, rel=1e-3)
    assert [block.day for block in recording.before[CPU]] == [FIRST_DAY, FIRST_DAY + 1, FIRST_DAY + 2]


def test_budgets_and_alerts_are_those_of_the_week(recording: Recording) -> None:
    (budget,) = recording.budgets
    assert (budget.namespace, budget.name, budget.selector) == ("shop", "web", a_budget("web", "web", 1).selector)
    rise = int(80 * HOUR / STEP_SECONDS)
    assert set(budget.desired_healthy[: rise - 1]) == {2}
    assert set(budget.desired_healthy[rise + 1 :]) == {3}
    assert (budget.since, budget.until) == (-np.inf, INF)
    (alert,) = recording.alerts
    assert alert.labels == {"alertname": "NodeHot", "node": "pool-a-1"}
    assert alert.at == pytest.approx(ALERT[0], abs=SLACK)
    assert alert.until == pytest.approx(ALERT[1], abs=SLACK + 300.0)  # without a marker of its end


def test_the_pod_that_rebalancer_evicted_is_chained_to_its_replacement_and_no_other_is(
    recording: Recording,
) -> None:
    replaced = recording.pods.replaced
    assert replaced[row(recording, "new-x")] == row(recording, "new-1")
    assert np.count_nonzero(replaced >= 0) == 1  # db-0 was moved too, but the counter didn't rise


def test_our_soft_taints_are_those_of_the_week(recording: Recording) -> None:
    taint, drained = recording.soft_taints
    assert [recording.nodes.names[each.node] for each in (taint, drained)] == ["pool-a-0", "pool-a-1"]
    assert taint.since == pytest.approx(TAINTED[0], abs=SLACK)
    assert taint.until == pytest.approx(TAINTED[1], abs=SLACK + 300.0)


def test_another_cluster_in_the_same_prometheus_is_not_recorded(recording: Recording) -> None:
    assert "stranger" not in (*recording.nodes.names, *recording.pods.uids)


def test_a_recording_is_shorter_where_retention_is_and_says_so(
    server: PrometheusServer, today: ClusterSnapshot, tmp_path: Path
) -> None:
    policy = a_policy(usage={"prometheus": {"url": server.url}})
    found = read_recording(
        policy,
        Settings(history_dir=str(tmp_path)),
        since_seconds=20 * DAY_SECONDS,
        until=FIRST_DAY * DAY_SECONDS + 6 * HOUR,
        progress=NullProgress(),
        clock=Clock(time.time()),
        today=today,
    )
    assert (found.start, found.end) == (FIRST_DAY * DAY_SECONDS, FIRST_DAY * DAY_SECONDS + 6 * HOUR)
    assert any("is its retention shorter?" in gap.text for gap in found.gaps)
    assert "old-0" in found.pods.uids
    assert np.isinf(found.pods.ended).all()  # nothing of what came later


def test_a_prometheus_that_refuses_many_samples_is_read_in_smaller_parts(
    weak_server: PrometheusServer, recording: Recording, today: ClusterSnapshot, tmp_path: Path
) -> None:
    found = read_recording(
        a_policy(usage={"prometheus": {"url": weak_server.url}}),
        Settings(history_dir=str(tmp_path)),
        since_seconds=DAY_SECONDS,
        until=END,
        progress=NullProgress(),
        clock=Clock(time.time()),
        today=today,
    )
    assert_same_end(found, recording)


def test_behind_a_frontend_that_limits_the_range_of_queries_it_is_read_in_smaller_parts(
    server: PrometheusServer, recording: Recording, today: ClusterSnapshot, tmp_path: Path
) -> None:
    def frontend(asked: Asked) -> Reply:
        seconds = float(asked.params.get("end", 0)) - float(asked.params.get("start", 0))
        if seconds > 6 * HOUR:
            return too_long(seconds, 6 * HOUR)
        answer = requests.post(f"{server.url}{asked.path}", data=asked.params, timeout=60)
        return answer.status_code, answer.content

    with fake_prometheus(frontend) as fake:
        found = read_recording(
            a_policy(usage={"prometheus": {"url": fake.url}}),
            Settings(history_dir=str(tmp_path)),
            since_seconds=DAY_SECONDS,
            until=END,
            progress=NullProgress(),
            clock=Clock(time.time()),
            today=today,
        )
    assert_same_end(found, recording)


def assert_same_end(found: Recording, recording: Recording) -> None:
    """`found` is the last day of the recording."""
    late = recording.pods.ended > END - DAY_SECONDS
    assert set(found.pods.uids) == {uid for uid, there in zip(recording.pods.uids, late, strict=True) if there}
    steps = int(DAY_SECONDS // STEP_SECONDS)
    wanted, got = recording.usage[CPU].node[:, -steps:], found.usage[CPU].node
    for at, name in enumerate(found.nodes.names):
        np.testing.assert_allclose(got[at], wanted[recording.nodes.names.index(name)], rtol=1e-3)


def test_days_that_were_read_when_a_node_was_gone_are_named(
    server: PrometheusServer, today: ClusterSnapshot, tmp_path: Path
) -> None:
    policy, settings = a_policy(usage={"prometheus": {"url": server.url}}), Settings(history_dir=str(tmp_path))
    clock = Clock(time.time())
    with history_keepers(policy, settings, progress=NullProgress(), clock=clock, unlimited=True) as keepers:
        keepers[CPU].update(today)
    found = read_recording(
        policy, settings, since_seconds=WEEK, until=END, progress=NullProgress(), clock=clock, today=today
    )
    gaps = [gap.text.partition(" on ")[0] for gap in found.gaps if "no figures" in gap.text]
    assert gaps == ["cpu: no figures of 1 node gone today"]


def test_a_recording_can_be_sent_to_another_process(recording: Recording) -> None:
    whole = replace(recording, today=None, pod_templates=None)  # the builder's template decoder is no function
    assert pickle.loads(pickle.dumps(whole)).pods.uids == recording.pods.uids
