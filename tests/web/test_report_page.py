"""A report as one file."""

import re
from dataclasses import replace

import pytest

from rebalancer.effect.report import Report, ResourceLine, make_report
from rebalancer.model.notation.document import DIMENSIONS
from rebalancer.model.records.effect import Rate
from rebalancer.web.pages.report_page import render_report
from tests.web.builders import DAY, NOW, a_report
from tests.web.readers import read_page


def shown(report: Report) -> str:
    return render_report(report, cluster="blue", now=NOW)


@pytest.fixture(scope="module")
def text() -> str:
    return shown(a_report())


def test_the_file_asks_for_nothing_else(text: str) -> None:
    page = read_page(text)
    assert [
        each.attributes for each in page.walk() if {"src", "href", "action", "srcset"} & each.attributes.keys()
    ] == []
    assert page.all("script") == []
    assert re.findall(r"https?://|url\(|@import|@font-face", text) == []
    assert "default-src 'none'" in text


def test_the_file_has_its_style_and_pictures_in_it(text: str) -> None:
    page = read_page(text)
    assert ".tiles" in page.one("style").text
    assert len(page.all("svg", role="img")) >= 5


def test_the_file_tells_rates_reasons_nodes_and_forecasts(text: str) -> None:
    message = read_page(text).one("main").text
    for each in (
        "Discovery 78.6%",
        "198 of 252",
        "the measured share stayed at or under the pool's high",
        "guards protect its pods",
        "shop/checkout",
        "node-1",
        "By pool",
        "3.1%",
        "22 Sep 13:00",
    ):
        assert each in message, each


def test_a_report_shows_resources_where_more_than_cpu_occurs() -> None:
    def line(resource: str) -> ResourceLine:
        cooled = Rate(part=3, whole=4)
        return ResourceLine(resource=resource, cooled=cooled, share_before=0.9, share_planned=0.7, share_after=0.72)

    page = read_page(shown(replace(a_report(), resources=(line("cpu"), line("memory")))))
    table = page.one("div", aria_label="Relieved nodes by resource")
    cells = [[each.text for each in (*row.all("th"), *row.all("td"))] for row in table.one("tbody").all("tr")]
    assert [(row[0], *row[2:]) for row in cells] == [(name, "90%", "70%", "72%") for name in ("cpu", "memory")]
    assert "3 of 4" in cells[1][1]
    assert "Relieved nodes by resource" not in shown(replace(a_report(), resources=(line("cpu"),)))


def test_a_report_of_nothing_says_so() -> None:
    message = read_page(shown(make_report(since=NOW - DAY, until=NOW, by=(), days=()))).one("main").text
    assert "no data for this time" in message
    assert "Discovery -" in message


def test_all_dimensions_at_once_have_a_column_each() -> None:
    report = replace(a_report(by="pool"), by=DIMENSIONS)
    lines = tuple(replace(line, cluster="", strategy="", trigger="") for line in report.lines)
    heads = [each.text for each in read_page(shown(replace(report, lines=lines))).all("th", scope="col")]
    assert [each for each in heads if each in ("Cluster", "Pool", "Strategy", "Trigger")][:4] == [
        "Cluster",
        "Pool",
        "Strategy",
        "Trigger",
    ]


def test_names_in_a_report_are_text() -> None:
    hostile = "<script>alert(1)</script>"
    report = replace(a_report(), notes=(hostile,))
    report = replace(report, hottest=tuple(replace(row, node=hostile) for row in report.hottest))
    page = read_page(render_report(report, cluster=hostile, now=NOW))
    assert page.all("script") == []
    assert hostile in page.one("main").text
