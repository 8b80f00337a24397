"""What people get to see."""

import json
import math
from typing import Any

import pytest

from rebalancer.cli.output.report_document import json_text
from rebalancer.effect.comparison import compare
from rebalancer.effect.messages import sentence, shown, worth_of_plans
from rebalancer.effect.rates import day_rows
from rebalancer.effect.report import AccuracyLine, Report, make_report
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.notation.document import DIMENSIONS
from rebalancer.model.notation.figures import cores, percent
from rebalancer.model.reason import BlockedReason, MissReason
from rebalancer.model.records.effect import Assessment, ChangeBreakdown, HotEpisode, Outcome, Rate, Step
from tests.builders import an_eviction
from tests.effect.builders import DAY, STRATEGY, T0, a_breakdown, a_pod, a_row, an_assessment, an_episode, an_hour

SINCE, UNTIL = DAY * 86_400.0, (DAY + 7) * 86_400.0
FOUND = {"discovered_at": T0, "discovery_trigger": "periodic", "strategy": STRATEGY}


def an_account(*, landed: float = 0.0, unexplained: float = 0.0) -> ChangeBreakdown:
    """Of a node that came from 8 to 7 cores but for these."""
    after = 7_000.0 + landed + unexplained
    return a_breakdown(8_000.0, after, evicted=1_000.0, arrived=landed, residual=unexplained)


def an_accuracy(pool: str | None = None, **fields: Any) -> AccuracyLine:
    unknown = dict.fromkeys(("mae", "coverage", "hot_recall", "hot_precision", "peak_hour_error"))
    return AccuracyLine(pool=pool, forecasts=30, **{**unknown, **fields})


def some_details() -> tuple[list[HotEpisode], list[Assessment], list[Eviction]]:
    missed = {"minutes": 30, "miss_reason": MissReason.BELOW_THRESHOLD}
    stuck = {"blocked_reason": BlockedReason.LIMITS, "detail": "limits were used up", **FOUND}
    episodes = [
        an_episode(detail="measured at most 71.2%", **missed),
        an_episode(start=T0 + 86_400, detail="measured at most 70%", **missed),
        an_episode(minutes=90, node="node-2", **stuck),
        an_episode(minutes=45, node="node-3", evictions=2, cooled=True, **FOUND),
        an_episode(minutes=None, node="node-4", start=UNTIL - 1_200, evictions=1, cooled=False, **FOUND),
    ]
    a, b, c = (a_pod(name, evicted=True) for name in "abc")
    cooled = {"outcome": Outcome.COOLED, "after_share": 0.7, "breakdown": an_account()}
    arrived = {"outcome": Outcome.NEW_PODS_ARRIVED, "after_share": 0.79, "breakdown": an_account(landed=900.0)}
    assessments = [
        an_assessment(a, b, node="node-3", **cooled),
        an_assessment(c, a_pod("stays"), node="node-4", minute=30, **arrived, detail="80% to 79%"),
        an_assessment(c, node="node-4", minute=30, step=Step.HOUR, outcome=Outcome.COOLED),
    ]
    moved = [
        an_eviction(service=service, node=node, cycle=f"cycle-{cycle}", trigger=trigger)
        for service, node, cycle, trigger in (
            ("shop/cart", "node-3", 10, "periodic"),
            ("shop/cart", "node-4", 30, "alert"),
            ("shop/web", "node-3", 10, "periodic"),
            ("shop/cart", "node-9", 99, "alert"),
        )
    ]
    return episodes, assessments, moved


def test_the_worth_of_plans_reads_as_a_sentence() -> None:
    said = worth_of_plans(PlanScore(hot_node_minutes=342.4, price=1_234.5))
    relief = "342 hot node-minutes, at a price of 1234 ordinary evictions"
    assert said == f"Planned relief, summed over cycles whose hours overlap: {relief}"
    known = make_report(since=SINCE, until=UNTIL, by=(), days=[], plans=PlanScore(hot_node_minutes=1.5, price=2.0))
    assert json.loads(json_text(known, ["test"]))["plans"] == {"hotNodeMinutes": 1.5, "price": 2.0}
    nothing = make_report(since=SINCE, until=UNTIL, by=(), days=[])
    assert json.loads(json_text(nothing, ["test"]))["plans"] is None


@pytest.fixture
def report() -> Report:
    episodes, assessments, moved = some_details()
    rows = day_rows(cluster="test", days=range(DAY, DAY + 7), until=UNTIL, episodes=episodes, assessments=assessments)
    hours = [an_hour(DAY * 24 + each) for each in range(-168, 168)]
    late = an_assessment(last_eviction_at=UNTIL, late=True, outcome=Outcome.REMAINING_PODS_GREW)
    return make_report(
        since=SINCE,
        until=UNTIL,
        by=("pool", "trigger"),
        days=[*rows, a_row(day=DAY - 1, hot=99), a_row(day=DAY + 7, hot=99)],
        episodes=[*episodes, an_episode(start=UNTIL), an_episode(start=SINCE - 7_200)],
        assessments=[*assessments, late],
        moved=moved,
        hours=hours,
        accuracy=[an_accuracy(mae=0.04, coverage=0.9, peak_hour_error=1.5)],
        comparison=compare(hours[:168], hours[168:]),
        details_since=SINCE,
    )


def test_the_rates_are_of_the_days_of_the_time(report: Report) -> None:
    assert report.total is not None
    assert [shown(rate) for rate in (report.total.discovery, report.total.eviction, report.total.effectiveness)] == [
        "3 of 5 (60%)",
        "2 of 3 (66.7%)",
        "1 of 2 (50%)",
    ]
    assert [({name: line.key(name) for name in report.by}, line.missed) for line in report.lines] == [
        ({"pool": "general", "trigger": ""}, True),
        ({"pool": "general", "trigger": "periodic"}, False),
    ]
    assert [point.day for point in report.trend] == [DAY, DAY + 1, DAY + 6]


def test_reasons_have_a_sentence_a_share_and_the_newest_example(report: Report) -> None:
    assert [(each.key, each.rate) for each in report.reasons] == [
        ("discovery/belowThreshold", Rate(part=2, whole=2)),
        ("eviction/limits", Rate(part=1, whole=1)),
        ("effect/newPodsArrived", Rate(part=1, whole=2)),
    ]
    assert [each.example for each in report.reasons] == [
        "node-1: measured at most 70%",
        "node-2: limits were used up",
        "node-4: 80% to 79%",
    ]
    assert report.reasons[1].sentence == "limits were used up"


def test_nodes_and_services_count_the_same_evictions_and_the_report_says_which_of_them_the_rates_count(
    report: Report,
) -> None:
    """Four evictions: one from node-9, which is not assessed, and two from node-3."""
    assert report.evictions == sum(each.evictions for each in report.services) == 4
    counts = {"node-1": 0, "node-2": 0, "node-3": 2, "node-4": 1}
    assert {each.node: each.evictions for each in report.hottest} == counts
    assert report.total is not None
    note = "rates count only what is assessed, {} of 4 evictions; the tables of nodes and services count all"
    assert note.format(report.total.counts.evictions) in report.notes


def test_the_hottest_and_the_most_uselessly_relieved_nodes_come_first(report: Report) -> None:
    assert [(row.node, row.episodes, row.hot_minutes) for row in report.hottest] == [
        ("node-2", 1, 90.0),
        ("node-1", 2, 60.0),
        ("node-3", 1, 45.0),
        ("node-4", 1, 20.0),
    ]
    assert [(row.node, row.evictions, row.ineffective_evictions) for row in report.ineffective] == [("node-4", 1, 1)]


def test_minutes_outside_of_the_time_do_not_count() -> None:
    long = an_episode(start=SINCE - 600, minutes=30)
    [row] = make_report(since=SINCE, until=SINCE + 900, by=(), days=[], episodes=[long]).hottest
    assert row.hot_minutes == 15.0


def test_services_are_listed_by_how_often_they_were_moved_and_whether_it_helped(report: Report) -> None:
    assert [(row.service, row.evictions, row.nodes) for row in report.services] == [
        ("shop/cart", 3, 3),
        ("shop/web", 1, 1),
    ]
    assert [row.effective for row in report.services] == [Rate(part=1, whole=2), Rate(part=1, whole=1)]
    assert report.services[0].counts.triggers == {"alert": 2, "periodic": 1}


def test_accounts_add_up(report: Report) -> None:
    account = report.breakdown
    assert account is not None
    assert (account.before, account.after) == (16_000.0, 14_900.0)
    assert (account.evicted, account.arrived, account.residual) == (2_000.0, 900.0, 0.0)


def test_notes_say_what_makes_the_figures_doubtful(report: Report) -> None:
    assert report.notes == (
        "insufficient data: 5 episodes, rates need at least 20",
        "1 node still hot when the SLO was last evaluated: their figures may change",
        "rates count only what is assessed, 3 of 4 evictions; the tables of nodes and services count all",
    )
    grew = {"outcome": Outcome.REMAINING_PODS_GREW}
    made = [
        an_assessment(minute=5, late=True, **grew, breakdown=an_account(unexplained=900)),
        an_assessment(minute=10, **grew, breakdown=an_account(landed=500, unexplained=100)),
        an_assessment(minute=20, outcome=Outcome.UNKNOWN),
        an_assessment(minute=30),
    ]
    known: dict[str, Any] = {"days": [a_row(hot=20, discovered=20)], "assessments": made, "details_since": SINCE + 1}
    drifts = an_accuracy("batch", drift="the error of the last 3 days is 9% of capacity, 2% before")
    reported = make_report(since=SINCE, until=UNTIL, by=(), accuracy=[drifts], **known)
    assert reported.notes == (
        "1 assessment pending",
        "1 assessment made late: not counted",
        "1 assessment without the node's load",
        "25% of the CPU change of relieved nodes is not explained by their pods",
        "nodes, services and the change breakdown are of a shorter time: older details are not kept",
        "forecasts of pool batch: the error of the last 3 days is 9% of capacity, 2% before",
    )


def test_nothing_known_is_reported_and_no_rate_is_made_of_it() -> None:
    empty = make_report(since=SINCE, until=UNTIL, by=DIMENSIONS, days=[])
    assert (empty.total, empty.lines, empty.reasons, empty.breakdown) == (None, (), (), None)
    assert empty.notes == ("no data for this time: no node was hot by the hot-node SLO, or the SLO was not evaluated",)
    assert to_json(empty)["total"] is None


def test_a_long_time_is_shown_by_weeks() -> None:
    rows = [a_row(day=DAY + each, hot=1) for each in range(60)]
    reported = make_report(since=SINCE, until=SINCE + 60 * 86_400, by=(), days=rows)
    assert {point.days for point in reported.trend} == {7}
    assert sum(point.line.counts.hot for point in reported.trend) == 60


# ---- as JSON


def to_json(report: Report) -> dict[str, Any]:
    return dict(json.loads(json_text(report, ["test"])))


def test_the_document_says_what_the_report_says(report: Report) -> None:
    document = to_json(report)
    assert (document["schemaVersion"], document["clusters"]) == ("2", ["test"])
    assert (document["since"], document["until"]) == ("2027-02-01T00:00:00+00:00", "2027-02-08T00:00:00+00:00")
    assert document["by"] == ["pool", "trigger"]
    assert document["total"]["discovery"] == {"part": 3, "whole": 5, "share": 0.6}
    assert document["total"]["cluster"] is None
    missed = document["lines"][0]
    assert (missed["pool"], missed["trigger"], missed["strategy"]) == ("general", "", None)
    assert missed["discovery"] == {"part": 0, "whole": 0, "share": None}
    assert missed["reasons"] == {"discovery/belowThreshold": 2}
    assert document["trend"][0]["from"] == "2027-02-01"
    assert document["daily"][0]["day"] == "2027-02-01"
    assert document["pools"][-1]["pool"] is None
    hottest = {"node": "node-2", "pool": "general", "episodes": 1, "hotMinutes": 90.0}
    assert document["hottest"][0] == {**hottest, "evictions": 0, "ineffectiveEvictions": 0}
    assert document["services"][0]["effective"] == {"part": 1, "whole": 2, "share": 0.5}
    assert document["breakdown"]["returned"] == 0.0
    assert document["accuracy"][0]["hotRecall"] is None
    assert document["comparison"]["matchedDays"] == 7
    assert document["notes"] == list(report.notes)


def test_what_is_not_known_is_null_in_the_document() -> None:
    document = to_json(make_report(since=SINCE, until=UNTIL, by=(), days=[a_row(hot=1, relief_measured=math.nan)]))
    assert document["total"]["reliefMeasuredCores"] is None


# ---- words


def test_a_counted_reason_has_the_sentence_of_its_code() -> None:
    assert sentence("discovery/stabilizationWindow") == MissReason.STABILIZATION_WINDOW.sentence
    assert sentence("eviction/noTargetNode") == BlockedReason.NO_TARGET_NODE.sentence
    assert sentence("effect/remainingPodsGrew") == Outcome.REMAINING_PODS_GREW.sentence
    assert sentence("effect/ofALaterVersion") == "effect/ofALaterVersion"


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        *((percent, share, text) for share, text in ((0.712, "71.2%"), (0.75, "75%"), (1.0, "100%"), (0.0, "0%"))),
        *((percent, share, text) for share, text in ((-0.0001, "0%"), (None, "-"), (math.nan, "-"))),
        *((cores, millicores, text) for millicores, text in ((1_850.0, "1.85"), (1_000.0, "1"), (-400.0, "-0.4"))),
        *((cores, millicores, text) for millicores, text in ((3.0, "0"), (-3.0, "0"), (100_000.0, "100"))),
    ],
)
def test_shares_are_shown_in_percent_and_cores_in_two_digits(show: Any, value: float | None, text: str) -> None:
    assert show(value) == text
