"""One scene for the facts that several surfaces show: a daemon's hour in the lab, its database, and all that shows it.

Four pools: `general` acts and has an eviction that fails, `batch` is in dry run, `fixed` has no pod that may be
evicted, `quiet` is cool. The machine's time zone is not UTC.
"""

import functools
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.bootstrap.commands import contexts, ledger_view
from rebalancer.bootstrap.commands.contexts import evaluated_context
from rebalancer.bootstrap.wiring import history
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cli.commands import report as report_command
from rebalancer.cli.output import times
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.daemon.telemetry import EffectTelemetry, count, record_forecast_run
from rebalancer.dashboard.sources import Sources
from rebalancer.dashboard.views import LiveViews
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import CpuModel, Lab, workload
from rebalancer.lab.faults import Webhook
from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.records.notifications import Notification
from rebalancer.notifications import messages
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import open_records
from rebalancer.web import Metrics
from tests.dashboard.test_views import Leads
from tests.programs.in_process import run_here
from tests.stories.scenarios.stage import (
    GENEROUS,
    START,
    a_machine,
    a_scenario,
    service,
    settings_in,
    stories_policy,
)
from tests.web.fakes import AsgiClient, Daemon
from tests.web.readers import Element, read_page
from tests.web.scenarios import the_app

ZONE = "Asia/Kolkata"
"""Five hours and a half ahead of UTC."""
BEGIN = START - START % 3600.0
TURN_SECONDS = 120.0
TURNS = 30
"""An hour."""
ALERT_TURN = 20
"""Which of the turns is for an alert; the others are periodic."""
HIGH = 75
POOLS = ("general", "batch", "fixed", "quiet")
FAILS = "shop/stubborn-*"


def the_policy(lab: Lab) -> dict[str, Any]:
    """One strategy for all pools, every two minutes."""
    thresholds = {"high": HIGH, "target": 65, "low": 50}
    pools: list[dict[str, Any]] = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": thresholds} for name in POOLS
    ]
    pools[1]["mode"] = "DryRun"
    return stories_policy(
        lab,
        pools=pools,
        strategies=[{"name": "LowNodeUtilization", "interval": f"{TURN_SECONDS:g}s"}],
        limits={**GENEROUS, "service": {"inFlight": 1, "evictions": [{"max": 3, "per": "1h"}]}},
        effect={"hotNodeSLO": {"for": "2m", "threshold": HIGH}, "settlingTime": "10m"},
        lists={"deny": [{"pools": ["fixed"]}]},
        forecast={"mode": "Observe", "interval": "30m"},
    )


def the_cluster() -> Any:
    """A hot node in each pool but `quiet`, and a cool one or two beside it."""
    machines = [
        a_machine(f"{pool}-{number}", pool=pool, labels={"pool": pool})
        for pool, count_of in zip(POOLS, (4, 3, 2, 2), strict=True)
        for number in range(1, count_of + 1)
    ]

    def of(name: str, pool: str, place: Mapping[str, int], **fields: Any) -> Any:
        return service(name, place, node_selector={"pool": pool}, **fields)

    def burns(pool: str, cores: float) -> Any:
        # without a past it was cool yesterday: the forecast has something to say
        return workload(
            f"burn-{pool}",
            namespace="burn",
            kind="Pod",
            place={f"{pool}-1": 1},
            cpu=CpuModel(base=cores, noise=0.01),
            cpu_request="8000m",
        )

    return a_scenario(
        machines,
        burns("general", 8.6),
        burns("batch", 8.0),
        burns("fixed", 10.0),
        of("web", "general", {"general-1": 2, "general-2": 2, "general-3": 1}),
        of("api", "general", {"general-1": 1, "general-3": 1}),
        of("stubborn", "general", {"general-1": 2, "general-4": 1}),
        of("jobs", "batch", {"batch-1": 5, "batch-2": 1}),
        of("db", "fixed", {"fixed-1": 3, "fixed-2": 1}),
        of("calm", "quiet", {"quiet-1": 1, "quiet-2": 1}),
        history_days=3.0,
    )


class LabTime:
    """The module `time` of a command, with the lab's clock."""

    def __init__(self, lab: Lab) -> None:
        self.time, self.tzset = lab.clock.now, time.tzset


@dataclass
class Scene:
    """The daemon after its hour, and everything that shows what it knows. Each surface is read once."""

    lab: Lab
    folder: Path
    policy: RebalancerPolicy
    active: Active
    metrics: Metrics
    leader: LiveViews
    follower: LiveViews
    reports: list[CycleReport] = field(default_factory=list)
    sent: list[Notification] = field(default_factory=list)
    _kept: dict[Any, Any] = field(default_factory=dict)

    # ---- commands

    def run(self, *words: str) -> str:
        """What a command prints."""
        if words not in self._kept:
            cluster = () if words[0] in ("report", "db") else ("--kubeconfig", str(self.folder / "config"))
            policy = () if words[0] == "db" else ("-f", str(self.folder / "policy.yaml"))
            done = run_here([*words, *policy, *cluster, "--database", self.database], columns=400)
            assert done.code == 0, done.err
            self._kept[words] = done.out
        return str(self._kept[words])

    def document(self, *words: str) -> Any:
        """The same as JSON."""
        return json.loads(self.run(*words, "-o", "json"))

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'rebalancer.db'}"

    # ---- pages

    def page(self, path: str, *, follower: bool = False) -> Element:
        """The content of a page of the dashboard."""
        key = (path, follower)
        if key not in self._kept:
            client = self._follower if follower else self._leader
            answer = client.get(path)
            assert answer.status == 200, (path, answer.status)
            self._kept[key] = read_page(answer.body).one("main")
        made: Element = self._kept[key]
        return made

    @cached_property
    def _leader(self) -> AsgiClient:
        return AsgiClient(the_app(self.leader, Daemon()))

    @cached_property
    def _follower(self) -> AsgiClient:
        return AsgiClient(the_app(self.follower, Daemon()))

    def close(self) -> None:
        for each in (self._leader, self._follower):
            each.close()

    def rows(self, path: str, *columns: str, follower: bool = False) -> list[dict[str, str]]:
        """The rows of the first table of a page that has these columns; empty where there is none. `key` is that of
        the row, `when` the first time in it, in UTC."""
        for table in self.page(path, follower=follower).all("table"):
            heads = [each.text for each in table.one("thead").all("th")]
            if set(columns) <= set(heads):
                return [_cells(row, heads) for row in table.one("tbody").all("tr")]
        return []

    def footer(self, *, follower: bool = False) -> str:
        """The foot of every page."""
        client = self._follower if follower else self._leader
        return read_page(client.get("/policy").body).one("footer").text

    # ---- metrics

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        total = 0.0
        for line in self.metrics.page()[0].decode().splitlines():
            found = re.fullmatch(rf"rebalancer_{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total


def _cells(row: Element, heads: list[str]) -> dict[str, str]:
    cells = [each.text for each in row.walk() if each.name in ("th", "td")]
    when = [each.attributes["datetime"] for each in row.all("time")]
    return dict(zip(heads, cells, strict=True)) | {"key": row.attributes.get("data-key", ""), "when": "".join(when[:1])}


@contextmanager
def the_scene(folder: Path) -> Iterator[Scene]:
    """The daemon's hour; its last cycle was just now."""
    with (
        Lab.start(the_cluster(), stepped=True, start_time=BEGIN) as lab,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as stack,
    ):
        settings = settings_in(folder, lab)
        patch.setenv("TZ", ZONE)
        time.tzset()
        stack.callback(time.tzset)
        stack.callback(patch.undo)
        patch.setenv("REBALANCER_HISTORY_DIR", settings.history_dir)
        for module, name in (
            (contexts, "planning_context"),
            (history, "history_keepers"),
            (ledger_view, "ledger_view"),
        ):
            patch.setattr(module, name, functools.partial(getattr(module, name), clock=lab.clock))
        for module in (report_command, times):
            patch.setattr(module, "time", LabTime(lab))
        document = the_policy(lab)
        (folder / "policy.yaml").write_text(yaml.safe_dump(document))
        policy = RebalancerPolicy.model_validate(document)
        made = stack.enter_context(_opened(lab, folder, policy, settings))
        lab.faults.set(webhooks=(Webhook(pods=FAILS, code=403, message="it must stay"),))
        _live(made)
        stack.callback(made.close)
        yield made


def an_alert(node: str) -> CycleRequest:
    """An alert that calls a cool node hot."""
    mark = ThresholdOverride(node=node, strategy="LowNodeUtilization", high=0.15, target=0.13, source="alert NodeHot")
    scope = RequestScope(nodes=frozenset({node}))
    return CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({scope}), thresholds={(node, mark.resource): mark})


@contextmanager
def _opened(lab: Lab, folder: Path, policy: RebalancerPolicy, settings: Any) -> Iterator[Scene]:
    with ExitStack() as stack:
        active = stack.enter_context(evaluated_context(policy, settings, progress=NullProgress(), clock=lab.clock))
        keepers = stack.enter_context(history.history_keepers(policy, settings, progress=NullProgress()))
        records = stack.enter_context(open_records(url=settings.database, cluster=policy.cluster, clock=lab.clock))
        ledger = records.ledger(clock=lab.clock)
        lookout = ForecastLoop(
            policy=policy, keepers=keepers, clock=lab.clock, ledger=ledger, records=records.forecasts()
        )
        active = replace(active, forecast_loop=lookout)

        def views(leads: bool) -> LiveViews:
            return LiveViews(
                Sources(
                    current=lambda: active,
                    leadership=Leads(leads=leads),
                    ledger=ledger,
                    inbox=records.inbox(clock=lab.clock),
                    archive=records.reading(),
                    effect=records.effect(),
                    forecasts=records.forecasts(),
                    clock=lab.clock,
                )
            )

        yield Scene(
            lab=lab,
            folder=folder,
            policy=policy,
            active=active,
            metrics=Metrics(),
            leader=views(True),
            follower=views(False),
        )


def _live(scene: Scene) -> None:
    """A cycle every two minutes, with what a daemon does after each."""
    lab, active = scene.lab, scene.active
    lookout, evaluation, telemetry = active.forecast_loop, active.evaluation, EffectTelemetry(scene.metrics)
    assert lookout is not None
    assert evaluation is not None
    world = replace(active.context, record_usage=scene.leader.measured)
    for turn in range(TURNS):
        lab.clock.sleep(TURN_SECONDS)
        if lab.clock.now() >= lookout.next_at():
            record_forecast_run(scene.metrics, lookout.look(world.cluster.snapshot()), 1.0)
        assessed = evaluation.turn()
        scene.sent += messages.not_effective(scene.policy.cluster, assessed)
        telemetry.update(evaluation.days(EffectTelemetry.DAYS))
        request = an_alert("general-2") if turn == ALERT_TURN else CycleRequest(trigger=Trigger.PERIODIC)
        report = run_cycle(world, scene.policy, request=request, dry_run=False).report
        assert report.stopped is None, report.stopped
        scene.reports.append(report)
        scene.leader.done(report)
        scene.sent += messages.evictions(report)
        count(scene.metrics, report, 1.0)
