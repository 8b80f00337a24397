"""The effect of evictions by the resource that they were for."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rebalancer.cli.output.report_tables import print_report
from rebalancer.effect.account import PodNow, account, outcome_of
from rebalancer.effect.discovery import attribute_episode
from rebalancer.effect.messages import sentence
from rebalancer.effect.rates import day_rows
from rebalancer.effect.report import Report, make_report
from rebalancer.model.records.effect import Assessment, Outcome, PodBefore
from tests.effect.builders import DAY, STRATEGY, a_finding, an_assessment, an_episode
from tests.effect.test_feedback import BRAKE, learned
from tests.effect.test_feedback import made as made_in_cycle

GIB = 2.0**30


def of_memory(outcome: Outcome | None = Outcome.COOLED, **changes: object) -> Assessment:
    """Of a node with 16 GiB, 14 of them in use, to be cooled to 75%."""
    given = {
        "resource": "memory",
        "capacity": 16 * GIB,
        "before_share": 0.875,
        "planned_share": 0.7,
        "after_share": 0.7,
        "target": 0.75,
    }
    pods = (
        PodBefore(uid="a", pod="shop/a", amount=3 * GIB, evicted=True),
        PodBefore(uid="b", pod="shop/b", amount=8 * GIB, evicted=False),
    )
    return an_assessment(*pods, outcome=outcome, **{**given, **changes})


def test_the_detail_of_an_assessment_by_memory_is_in_shares_of_the_node() -> None:
    made = of_memory(None)
    now = [
        PodNow(uid="b", name="shop/b", amount=8.5 * GIB, is_replacement=False),
        PodNow(uid="c", name="shop/c", amount=2 * GIB, is_replacement=False),
    ]
    parts = account(made, now, 14 * GIB, 13.5 * GIB)
    assert (parts.evicted, parts.arrived, parts.remaining_change) == (3 * GIB, 2 * GIB, 0.5 * GIB)
    assert outcome_of(made, parts, 13.5 / 16) == (
        Outcome.NEW_PODS_ARRIVED,
        "memory 87.5% to 84.4%, target 75%: other pods arrived and took the headroom "
        "(evicted -18.8%, landed +12.5%, the rest grew +3.1% of the node)",
    )


def report_of(*assessments: Assessment) -> Report:
    rows = day_rows(cluster="test", days=range(DAY, DAY + 1), until=0.0, episodes=[], assessments=assessments)
    since = DAY * 86_400.0
    return make_report(since=since, until=since + 86_400.0, by=("pool",), days=rows, assessments=assessments)


SEVERAL = (
    an_assessment(minute=1, outcome=Outcome.COOLED, after_share=0.68),
    of_memory(minute=2),
    of_memory(Outcome.UNEXPLAINED, minute=3, after_share=0.8, detail="memory grew"),
    of_memory(Outcome.UNKNOWN, minute=4, after_share=None),
)


def test_days_count_outcomes_by_resource_and_relief_in_cores_of_cpu_alone() -> None:
    report = report_of(*SEVERAL)
    assert report.total is not None
    counts = report.total.counts
    assert counts.reasons == {
        "effect/cooled": 1,
        "effect/cooled/memory": 1,
        "effect/unexplained/memory": 1,
        "effect/unknown/memory": 1,
    }
    assert (counts.relief_planned, counts.relief_measured) == (pytest.approx(1.2), pytest.approx(1.2))


def test_a_report_has_a_line_for_each_resource_with_its_shares() -> None:
    cpu, memory = report_of(*SEVERAL).resources
    assert (cpu.resource, cpu.cooled.part, cpu.cooled.whole) == ("cpu", 1, 1)
    assert (memory.resource, memory.cooled.part, memory.cooled.whole) == ("memory", 1, 2)
    shares = (memory.share_before, memory.share_planned, memory.share_after)
    assert shares == (pytest.approx(0.875), pytest.approx(0.7), pytest.approx(0.75))


def test_reasons_of_a_resource_are_a_share_of_its_own_assessments_and_name_it() -> None:
    lines = {each.key: each for each in report_of(*SEVERAL).reasons}
    assert set(lines) == {"effect/unexplained/memory", "effect/unknown/memory"}
    line = lines["effect/unexplained/memory"]
    assert (line.resource, line.rate.part, line.rate.whole) == ("memory", 1, 3)
    assert line.example == "node-1: memory grew"
    assert sentence(line.key) == f"{Outcome.UNEXPLAINED.sentence} of memory"


def printed(report: Report) -> str:
    out = io.StringIO()
    print_report(Console(width=240, file=out), report, clusters=["test"])
    return out.getvalue()


def test_the_table_by_resource_is_shown_where_more_than_cpu_occurs() -> None:
    text = printed(report_of(*SEVERAL))
    assert "Relieved nodes by resource" in text
    (line,) = [each for each in text.splitlines() if each.strip().startswith("memory ")]
    assert line.split() == ["memory", "1", "of", "2", "(50%)", "87.5%", "70%", "75%"]
    assert "Relieved nodes by resource" not in printed(report_of(SEVERAL[0]))


def test_the_cpu_change_of_relieved_nodes_leaves_other_resources_out() -> None:
    made = of_memory()
    assert report_of(replace(made, breakdown=account(made, [], 14 * GIB, 11 * GIB))).breakdown is None


def test_an_assessment_by_memory_says_nothing_about_an_episode_of_the_slo() -> None:
    found = a_finding(5, evictions=1)
    settled = [of_memory(minute=5, cycle=found.cycle)]
    episode = attribute_episode(
        an_episode(minutes=30, strategy=STRATEGY),
        [found],
        covered=True,
        every_seconds=300.0,
        paused=False,
        settled=settled,
    )
    assert (episode.evictions, episode.cooled) == (1, None)


def test_two_that_did_not_help_by_one_resource_back_off_and_one_by_each_do_not() -> None:
    first = made_in_cycle(1, Outcome.UNEXPLAINED, resource="memory")
    second = made_in_cycle(2, Outcome.UNEXPLAINED, resource="memory")
    (move,) = learned([second], [first], services=("shop/web",), brake=BRAKE).ineffective
    assert (move.service_identity, move.node, move.resource) == ("shop/web", "a", "memory")
    assert "did not cool by memory twice" in move.reason
    assert learned([replace(second, resource="cpu")], [first], services=("shop/web",), brake=BRAKE).ineffective == ()


def test_measured_relief_of_memory_does_not_calibrate_the_relief_of_cpu() -> None:
    many = [made_in_cycle(number, resource="memory", breakdown=None) for number in range(8)]
    assert learned(many).relief_factor == {}
