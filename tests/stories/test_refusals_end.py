"""Every refusal ends by itself once its cause has gone, in the process that refused: no cause is remembered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.wiring.database import open_ledger
from rebalancer.cycle.run import run_cycle
from rebalancer.lab.clock import timestamp
from rebalancer.lab.faults import Webhook
from rebalancer.lab.scenarios.build import set_ready
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.errors import RebalancerError
from tests.stories.scenarios.stage import NO_COOLDOWNS, TURN_SECONDS, Stage, a_scenario, a_stage, burner, codes, service

Act = Callable[[Stage], None]


def change(plural: str, name: str, how: Callable[[Any], None], namespace: str = "shop") -> Act:
    """Change one object of the lab."""

    def act(stage: Stage) -> None:
        cluster = stage.lab.cluster
        with cluster.lock:
            cluster.store.change(plural, cluster.store.get(plural, namespace, name), how)

    return act


def every_pod(how: Callable[[Any], None]) -> Act:
    """Change the pods of `web` on the hot node."""

    def act(stage: Stage) -> None:
        cluster = stage.lab.cluster
        with cluster.lock:
            for pod in cluster.pods(namespace="shop", node="hot", workload="web"):
                cluster.store.change("pods", pod, how)

    return act


def annotated(value: str | None) -> Callable[[Any], None]:
    def apply(pod: Any) -> None:
        notes = pod["metadata"].setdefault("annotations", {})
        notes.pop("rebalancer.dev/evict", None)
        if value is not None:
            notes["rebalancer.dev/evict"] = value

    return apply


def faults(**fields: Any) -> Act:
    return lambda stage: stage.lab.faults.set(**fields) and None


def cordons(*, on: bool) -> Act:
    def act(stage: Stage) -> None:
        for name in ("cool", "free"):
            stage.lab.cluster.cordon(name, on=on)

    return act


def pause(stage: Stage) -> None:
    """An operator pauses the cluster for some turns."""
    until = stage.lab.clock.now() + 5 * TURN_SECONDS
    with open_ledger(stage.policy, stage.settings) as ledger:
        ledger.pause(Scope.of("cluster", cluster=stage.policy.cluster), reason="a test", created_by="ops", until=until)


def start_now(stage: Stage) -> None:
    """All pods of `web` have just started."""
    at = timestamp(stage.lab.clock.now())
    every_pod(lambda pod: pod["status"].update(startTime=at))(stage)


def quota(room: int | None) -> Act:
    """A ResourceQuota of the namespace with room for so many pods; None = without one."""

    def act(stage: Stage) -> None:
        cluster = stage.lab.cluster
        with cluster.lock:
            if room is None:
                cluster.store.remove("resourcequotas", "shop", "few")
                return
            hard, used = {"pods": str(3 + room)}, {"pods": "3"}
            about = {"name": "few", "namespace": "shop"}
            quota = {"metadata": about, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
            cluster.store.create("resourcequotas", quota)

    return act


def readiness(*, ready: bool) -> Act:
    def act(stage: Stage) -> None:
        every_pod(lambda pod: set_ready(pod, stage.lab.clock.now(), ready=ready))(stage)

    return act


def nothing(stage: Stage) -> None:
    """Time alone ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that keeps all pods of `web` on the hot node, and its end."""

    code: str
    begin: Act = nothing
    end: Act = nothing
    policy: dict[str, Any] = field(default_factory=dict)
    turns: int = 1
    """So many cycles after its end a pod is evicted at the latest."""


CAUSES = {
    "veto": Cause(code="OptedOut", begin=every_pod(annotated("false")), end=every_pod(annotated(None))),
    "cordoned nodes": Cause(code="PoolFull", begin=cordons(on=True), end=cordons(on=False)),
    "webhook": Cause(
        code="ServerWebhook",
        begin=faults(webhooks=(Webhook(pods="shop/web-*"),)),
        end=faults(webhooks=()),
        policy={"safety": {"cooldowns": {**NO_COOLDOWNS, "webhookBackoff": {"initial": "5m"}}}},
        turns=3,
    ),
    "rights": Cause(code="ServerForbidden", begin=faults(denied=(("create", "pods/eviction"),)), end=faults(denied=())),
    "age": Cause(code="TooYoung", begin=start_now, policy={"guards": {"minAge": "10m"}}, turns=5),
    "pause": Cause(code="Paused", begin=pause, turns=5),
    "quota": Cause(code="QuotaExceeded", begin=quota(0), end=quota(None)),
    "not Ready": Cause(code="NotReady", begin=readiness(ready=False), end=readiness(ready=True)),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_refusal_ends_with_its_cause(cause: Cause, tmp_path: Path) -> None:
    cluster = a_scenario(("hot", "cool", "free"), burner("burner", "hot", 5.0), service("web", {"hot": 3}, cpu=3.0))
    with a_stage(cluster, tmp_path, **cause.policy) as stage:
        cause.begin(stage)
        assert cause.code in codes(stage.turn(), "web-")
        assert not stage.log.evicted
        cause.end(stage)
        stage.turns(cause.turns)
        assert stage.log.evicted


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (faults(prometheus_down="error"), None),
        (faults(prometheus_down="closed"), None),
        (faults(stale=("*",)), "CoverageTooLow"),
        (faults(missing=("*",)), None),
        (faults(nan=("*",)), "CoverageTooLow"),
        (faults(partial="a store is away"), "PartialUsage"),
        (faults(sides=("kubernetes",), error_share=1.0), None),
        (faults(sides=("kubernetes",), garbage_share=1.0), None),
    ],
    ids=["Prometheus fails", "Prometheus away", "stale", "missing", "NaN", "partial", "API fails", "API garbage"],
)
def test_a_doubt_about_the_whole_picture_ends_with_its_cause(begin: Act, why: str | None, tmp_path: Path) -> None:
    """`why`: code of the cycle's refusal; None where the cycle fails."""
    cluster = a_scenario(("hot", "cool", "free"), burner("burner", "hot", 5.0), service("web", {"hot": 3}, cpu=3.0))
    with a_stage(cluster, tmp_path) as stage:
        begin(stage)
        stage.lab.clock.sleep(5 * TURN_SECONDS)
        if why is None:
            with pytest.raises(RebalancerError):
                run_cycle(stage.world, stage.policy, dry_run=False)
        else:
            stopped = run_cycle(stage.world, stage.policy, dry_run=False).report.stopped
            assert stopped is not None
            assert stopped.code == why
        assert not stage.log.evicted
        stage.lab.faults.clear()
        stage.turn()
        assert stage.log.evicted
