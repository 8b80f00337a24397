"""A cycle whose moves don't cool anything: what it writes down, shows and tells of them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from rebalancer.cli.output.cycle import print_cycle
from rebalancer.cli.output.cycle_document import cycle_document
from rebalancer.cli.output.json import encode
from rebalancer.cycle.evict.scheduled_assessments import assessments_of
from rebalancer.cycle.report.events import publish_events
from rebalancer.daemon.telemetry import count
from rebalancer.lab import Breaks
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.steering import DRAINING, MAINTENANCE
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal, PodRefusal, Trigger
from rebalancer.model.reason import Reason
from rebalancer.strategies import Findings
from rebalancer.web import Metrics
from tests.builders import NOW, a_policy
from tests.evaluation.test_assessments import an_eviction, seen_at
from tests.store.builders import build_finding
from tests.stories.scenarios.stage import a_scenario, a_stage, service

NAN = float("nan")
FAILS = Breaks(after_seconds=0.0, exit_code=3, restarts=False, nodes=("a",))


def removes(**changes: object) -> Finding:
    marks = {"cpu_share": NAN, "high": NAN, "target": NAN}
    return build_finding(strategy="RemoveDuplicates", goal=Goal.REMOVE, reason="2 of web", **marks, **changes)


def a_report(
    findings: Sequence[tuple[Finding, str]] = (), evictions: Sequence[Eviction] = (), **fields: object
) -> CycleReport:
    report = CycleReport(id="c", cluster="test", trigger=Trigger.PERIODIC, dry_run=False, started_at=NOW, **fields)  # type: ignore[arg-type]
    report.findings += findings
    report.evictions += evictions
    return report


def shown(report: CycleReport, *, all_nodes: bool = False) -> str:
    page = io.StringIO()
    print_cycle(Console(file=page, width=200), report, all_nodes=all_nodes)
    return page.getvalue()


# ---- pods that have finished


def test_a_pod_that_has_failed_is_evicted_without_a_landing_and_is_not_waited_for(tmp_path: Path) -> None:
    cluster = a_scenario(("a", "b"), service("web", {"a": 1, "b": 1}, breaks=FAILS))
    strategies = [{"name": "RemoveFailedPods", "args": {"minPodLifetime": "1m"}}]
    # at most one of a service at a time: who still waited for the first would leave the second
    limits = {"service": {"inFlight": 1}}
    with a_stage(cluster, tmp_path, strategies=strategies, limits=limits) as stage:
        report = stage.turn()
        (first,) = report.evictions
        assert first.target_nodes == ()
        assert list(stage.ledger.open_evictions()) == []
        assert "none (finished)" in shown(report)
        (eviction,) = encode(cycle_document(report))["evictions"]
        assert (eviction["targetNode"], eviction["targetNodes"]) == (None, [])
        assert len(stage.log.evicted) == 1
        assert [each.strategy for each in (first,)] == ["RemoveFailedPods"]


# ---- what is looked at again


def test_only_who_promised_to_cool_a_node_is_assessed_there() -> None:
    seen, policy = seen_at(NOW), a_policy(strategies=[{"name": "LowNodeUtilization"}, {"name": "RemoveDuplicates"}])
    cools = build_finding(candidates=np.array([0], dtype=np.int32))
    cooling, removing = an_eviction("web-1"), an_eviction("web-2")
    removing.strategy = "RemoveDuplicates"

    def nodes(found: list[Findings], *evictions: Eviction) -> set[str]:
        report = a_report(evictions=evictions)
        return {each.node for each in assessments_of(report, seen, found, policy, now=NOW)}

    hot, other = Findings(findings=(cools,)), Findings(findings=(removes(),))
    nothing = Findings(findings=())
    assert nodes([hot, nothing], cooling) == {"hot"}
    assert nodes([hot, other], cooling, removing) == {"hot"}
    assert nodes([hot, other], removing) == set()
    assert nodes([nothing, other], removing) == set()


# ---- what people see


def test_findings_that_are_not_of_heat_have_a_table_of_their_own() -> None:
    page = shown(a_report([(build_finding(), "n1"), (removes(), "n2")]))
    assert page.index("Hot nodes") < page.index("Findings") < page.index("RemoveDuplicates")
    assert "Hot nodes" not in shown(a_report([(removes(), "n2")]))
    assert "No hot nodes" in shown(a_report())


def test_a_node_that_is_brought_down_though_nothing_is_hot_is_not_called_hot() -> None:
    released = build_finding(strategy="HighNodeUtilization", reason="full by requests and idle in fact")
    page = shown(a_report([(released, "n1")]))
    assert "Hot nodes" not in page
    assert page.index("Findings") < page.index("HighNodeUtilization") < page.index("full by requests")


def test_of_many_findings_the_first_are_shown_and_all_on_demand() -> None:
    many = a_report([(removes(), f"n{number:03}") for number in range(31)])
    page = shown(many)
    assert "Findings (30 of 31, all with --all-nodes)" in " ".join(page.split())
    assert ("n029" in page, "n030" in page) == (True, False)
    every = shown(many, all_nodes=True)
    assert ("n030" in every, "30 of 31" in every) == (True, False)
    few = a_report([(removes(), f"n{number:03}") for number in range(30)])
    assert "--all-nodes" not in shown(few)


def test_findings_that_read_the_same_are_one_line() -> None:
    page = shown(a_report([(removes(), "n1"), (removes(), "n2"), (removes(), "n1")]))
    rows = [line.split() for line in page.splitlines() if "RemoveDuplicates" in line]
    assert rows == [
        ["n1", "RemoveDuplicates", "2", "of", "web", "(2", "findings)"],
        ["n2", "RemoveDuplicates", "2", "of", "web"],
    ]


def test_what_keeps_pods_on_many_nodes_has_one_line_for_all() -> None:
    turn, kept = Reason.DRAIN_QUEUED, Reason.NODE_KEPT

    def refused(node: str, name: str, code: Reason) -> PodRefusal:
        namespace = "shop" if name else ""
        return PodRefusal(node=node, namespace=namespace, name=name, code=code, message=f"since {code}")

    refusals = [refused(f"n{number:02}", f"web-{number}-{pod}", turn) for number in range(11) for pod in "ab"]
    refusals += [refused(f"k{number:02}", "", kept) for number in range(11)]
    refusals += [refused("n05", "api-0", Reason.BARE_POD), refused("n06", "", Reason.NODE_NOT_READY)]
    report = a_report()
    report.refusals += refusals
    page = shown(report)
    lines = [line.split() for line in page.splitlines()]
    assert "Not evicted (each node with --all-nodes)" in " ".join(page.split())
    assert ["n05", "BarePod", "1", "shop/api-0", "since", "BarePod"] in lines
    assert ["n06", "NodeNotReady", "1", "(the", "node)", "since", "NodeNotReady"] in lines
    together = ["11", "nodes", "DrainQueued", "22", "shop/web-0-a", "since", "DrainQueued"]
    assert together in lines
    assert ["11", "nodes", "NodeKept", "11", "k00", "since", "NodeKept"] in lines
    assert len([line for line in lines if "DrainQueued" in line]) == 1
    every = shown(report, all_nodes=True)
    assert len([line for line in every.splitlines() if "DrainQueued" in line]) == 11
    assert "11 nodes" not in every
    assert "--all-nodes" not in every


def test_of_many_cordons_and_taints_the_first_are_named_and_all_on_demand() -> None:
    names = [f"n{number:02}" for number in range(12)]
    report = a_report(cordons=dict.fromkeys(names, MAINTENANCE), soft_tainted=dict.fromkeys(names[:11], "chosen"))
    page = " ".join(shown(report).split())
    assert "n09 (maintenance, new) and 2 more (--all-nodes)" in page
    assert "n09 (chosen) and 1 more (--all-nodes)" in page
    assert "n11 (maintenance, new)" not in page
    every = " ".join(shown(report, all_nodes=True).split())
    assert "n11 (maintenance, new)" in every
    assert "--all-nodes" not in every


def test_cordons_are_shown_before_and_after() -> None:
    before, now = {"a": MAINTENANCE, "b": DRAINING}, {"a": MAINTENANCE, "c": DRAINING}
    report = a_report(cordons_before=before, cordons=now)
    page = shown(report)
    assert "Cordoned: a (maintenance), c (draining, new)" in page
    assert "No longer cordoned: b (draining)" in page
    assert cycle_document(report)["cordons"] == [
        {"node": "a", "before": "maintenance", "now": "maintenance"},
        {"node": "b", "before": "draining", "now": None},
        {"node": "c", "before": None, "now": "draining"},
    ]


def test_the_document_has_no_number_where_there_is_no_share() -> None:
    document = cycle_document(a_report([(build_finding(), "n1"), (removes(), "n2")]))
    hot, other = encode(document)["findings"]
    assert (hot["goal"], hot["cpuShare"], hot["high"], hot["target"]) == ("cool", 0.91, 0.8, 0.7)
    assert (other["goal"], other["cpuShare"], other["high"], other["target"]) == ("remove", None, None, None)


@dataclass
class Events:
    """The events, as (node or service, reason, note)."""

    told: list[tuple[str, str, str]] = field(default_factory=list)

    def about_service(
        self, owner: Owner, *, reason: str, note: str, warning: bool = False, eviction: Eviction | None = None
    ) -> None:
        self.told.append((owner.name, reason, note))

    def about_node(self, node: str, *, reason: str, note: str, warning: bool = False) -> None:
        self.told.append((node, reason, note))


def test_events_say_what_was_cooled_what_was_cordoned_and_what_was_only_evicted() -> None:
    cooled, removed = an_eviction("web-1"), an_eviction("web-2", node="other")
    removed.strategy = "RemoveDuplicates"
    events = Events()
    publish_events(
        events,
        a_report(
            [(build_finding(), "hot"), (removes(), "other")],
            [cooled, removed],
            cordons_before={"a": DRAINING, "b": MAINTENANCE},
            cordons={"b": MAINTENANCE, "c": DRAINING},
        ),
    )
    of_nodes = [(name, reason) for name, reason, _ in events.told if name != "web"]
    assert of_nodes == [("hot", "Relieved"), ("other", "Evicted"), ("a", "Uncordoned"), ("c", "Cordoned")]


def test_cordons_and_progress_are_figures() -> None:
    metrics = Metrics()
    count(metrics, a_report(cordons={"a": DRAINING}, progress={"drained": 3, "draining": 1, "pending": 6}), 1.0)
    lines = metrics.page()[0].decode().splitlines()
    assert 'rebalancer_cordoned_nodes{reason="draining"} 1.0' in lines
    assert 'rebalancer_cordoned_nodes{reason="maintenance"} 0.0' in lines
    assert 'rebalancer_maintenance_nodes{state="pending"} 6.0' in lines
