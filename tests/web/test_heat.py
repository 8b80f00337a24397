"""The charts of the hottest nodes on the overview."""

import re

from rebalancer.web.pages import charts
from tests.web.builders import NOW, a_heat
from tests.web.fakes import Clients, Daemon
from tests.web.readers import Element, faults, links, read_page
from tests.web.scenarios import HandMade, the_app


def drawn(**fields: object) -> Element:
    page = read_page(charts.heat(a_heat(**fields), name="heat-1"))
    assert faults(page) == []
    return page.one("svg")


def test_a_chart_has_the_use_the_forecast_both_thresholds_and_the_evictions() -> None:
    svg = drawn()
    assert len(svg.all("path", class_="past")) == len(svg.all("path", class_="ahead")) == 1
    assert (svg.one("text", class_="high-text").text, svg.one("text", class_="target-text").text) == (
        "high 75%",
        "target 65%",
    )
    [mark] = svg.all("g", class_="mark")
    assert mark.one("text").text == "2"
    assert mark.one("title").text.endswith("shop/cart-1 from node-1")
    assert svg.all("title")[0].text == "CPU of the hottest node of general"
    assert svg.one("desc").text == ("Now 60%. Measured between 60% and 78.3%. Hot above 75%. 2 evictions are marked.")


def test_all_of_it_is_inside_the_picture() -> None:
    width, height = charts.HEAT_SIZE
    svg = drawn(past=((NOW - 60, 1.3), (NOW, 0.2)))
    for path in svg.all("path", class_="line"):
        for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path.attributes["d"]):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_a_pool_without_thresholds_or_forecast_has_no_lines_of_them() -> None:
    svg = drawn(high=None, target=None, ahead=(), evictions=())
    assert svg.all("line", class_="high") == svg.all("line", class_="target") == svg.all("path", class_="ahead") == []
    assert svg.one("desc").text.endswith("No evictions in this time.")


def test_a_pool_that_was_not_measured_yet_has_an_empty_chart() -> None:
    assert drawn(past=()).one("desc").text.startswith("Now -. ")


def test_the_overview_has_a_chart_for_each_pool(clients: Clients, daemon: Daemon) -> None:
    client = clients(the_app(HandMade(), daemon))
    section = read_page(client.get("/").body).one("section", aria_labelledby="heat")
    assert [each.one("figcaption").text for each in section.all("figure")] == ["general", "batch"]
    assert len(section.all("svg", class_="heat")) == 2
    assert "/?pool=batch" in links(section)
    assert section.one("div", class_="legend").text == "measured forecast evictions"
    assert read_page(client.get("/?pool=general").body).all("section", aria_labelledby="heat") == []
