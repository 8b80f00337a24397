"""The JSON document of a cycle, byte for byte."""

import math
from dataclasses import replace
from pathlib import Path

from rebalancer.cli.output.cycle_document import cycle_document, merged_document
from rebalancer.cli.output.json import as_text
from rebalancer.model.decisions.eviction import Outcome, PodAmount, TargetNode
from rebalancer.model.decisions.plan import (
    CycleReport,
    Goal,
    NodeLine,
    PlanScore,
    PodRefusal,
    RemainingHotNode,
    ResourceExcess,
    ResourceShare,
)
from rebalancer.model.reason import Reason, Refusal
from tests.builders import an_eviction
from tests.cli.test_cycle_output import NOW, STAYS, a_line, a_report, a_waiting_move
from tests.store.builders import build_finding

RECORDED = Path(__file__).parent / "data" / "cycle.json"
"""Written by the command line of schema version 2; fields are only added to it."""


def a_full_report() -> CycleReport:
    cpu = ResourceExcess(resource="cpu", share=0.8, high=0.75, target=0.65)
    memory = ResourceShare(resource="memory", before=0.5, planned=None)
    nan = math.nan
    return a_report(
        nodes=[
            replace(a_line("n1", p99=0.66), hot_by=("memory", "cpu"), resources=(memory,), high=0.8),
            replace(a_line("n2"), cpu_after=0.6),
            NodeLine(name="n3", pool="", cpu_before=None, cpu_planned=None),
        ],
        findings=[
            (build_finding(resource="memory", others=(cpu,)), "n1"),
            (build_finding(), "n2"),
            (build_finding(goal=Goal.REMOVE, cpu_share=nan, high=nan, target=nan), "n3"),
        ],
        soft_tainted={"n2": "hot"},
        cordons_before={"n4": "drained", "n5": "drained"},
        cordons={"n4": "drained", "n6": "low"},
        progress={"draining": 1, "pending": 2},
        evictions=[
            a_waiting_move(uid="u-1", target_nodes=(TargetNode("cool", 0.75), TargetNode("n2", 0.25))),
            an_eviction(resource="memory", amounts={"memory": PodAmount(2e9, 0.12), "disk-busy": PodAmount(0.3, nan)}),
            an_eviction(cpu_millicores=1234.56789, outcome=Outcome.REFUSED, detail="no room in the budget"),
        ],
        score=PlanScore(hot_node_minutes=61.25, price=3.5),
        remaining=[
            STAYS,
            RemainingHotNode(
                name="n3", pool="", share_planned=0.9, code=Reason.BARE_POD, message="a bare pod", resource="memory"
            ),
        ],
        refusals=[
            PodRefusal(node="n1", namespace="shop", name="web-1", code=Reason.LIMIT_NODE, message="full", next_at=NOW),
            PodRefusal(
                node="n1", namespace="", name="", code=Reason.NO_SAMPLE, message="no sample", setting="a.b", value="5m"
            ),
        ],
        notes=["a note"],
    )


def test_the_document_is_as_recorded() -> None:
    first = a_full_report()
    second = a_report(
        id="c2",
        finished_at=None,
        stopped=Refusal.of(Reason.CLOCK_SKEW, "9 s"),
        nodes=[replace(a_line("n1"), cpu_after=0.7)],
        score=PlanScore(hot_node_minutes=10.0, price=1.0),
    )
    assert as_text({"one": cycle_document(first), "several": merged_document([first, second])}) == RECORDED.read_text()
