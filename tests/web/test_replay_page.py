"""A replay as one file, read as text and by a real browser."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from rebalancer.model.recordings.replay import Replay, ReplayRun
from rebalancer.web.pages.replay_page import NextStep, render_replay
from tests.cli.builders import DAY, HOUR, START, a_replay, a_run
from tests.web.readers import Element, faults, read_page

NOW = START + 8 * DAY


def shown(replay: Replay) -> Element:
    return read_page(render_replay(replay, now=NOW))


@pytest.fixture(scope="module")
def text() -> str:
    runs = [a_run(evictions=14), a_run("other.yaml", hot_nodes=2, evictions=3)]
    return render_replay(a_replay(*runs), now=NOW)


def test_the_page_asks_for_nothing_else(text: str) -> None:
    page = read_page(text)
    outside = [each.attributes for each in page.walk() if {"src", "action", "srcset"} & each.attributes.keys()]
    assert outside == []
    assert [each.attributes["href"] for each in page.walk() if "href" in each.attributes] == ["#main"]
    assert page.all("script") == []
    assert re.findall(r"url\(|@import|@font-face", text) == []
    assert "default-src 'none'" in text
    assert faults(page) == []


def test_the_page_tells_figures_reasons_gaps_and_the_error(text: str) -> None:
    wording = read_page(text).one("main").text
    for each in (
        "Replay of Mon 21 Sep 00:00 UTC to Mon 28 Sep 00:00 UTC",
        "hot node-hours 42 → 7",
        "Moved most: shop/cart (3), shop/checkout (3)",
        "Kept hot longest: 7 node-hours by NoNodeWithHeadroom, most at Mon 21 Sep 10:00 UTC on 1 node",
        "The run as recorded gives 42 hot node-hours; 41.9 were measured (+0.2%).",
        "autoscalers are not replayed",
        "affinity and tolerations are those of today's objects (212 pods)",
        "shop/cart-6c9f7d5b8-00001",
    ):
        assert each in wording, each


def test_next_steps_are_commands_to_copy() -> None:
    steps = [NextStep(purpose="Show the evictions:", command="rebalancer plan -f 'a b.yaml'")]
    page = read_page(render_replay(a_replay(a_run(evictions=14)), now=NOW, next_steps=steps))
    (found,) = [each for each in page.all("section") if each.attributes.get("aria-labelledby") == "next-steps"]
    assert "Show the evictions:" in found.text
    assert found.one("pre").text == "rebalancer plan -f 'a b.yaml'"
    assert faults(page) == []
    assert "Next steps" not in shown(a_replay(a_run(evictions=14))).text


def test_the_page_states_the_capacity_of_each_pool(text: str) -> None:
    assert "Pool general lacks no node." in read_page(text).one("main").text


def test_the_page_says_what_it_is_before_its_figures(text: str) -> None:
    page = read_page(text)
    wording = page.one("main").text
    lead = page.one("p", class_="lead").text
    for each in ("if rebalancer had run with policy.yaml", "Nothing was evicted", "one hot node-hour"):
        assert each in lead
    assert wording.index(lead) < wording.index("hot node-hours 42")
    assert page.all("p", class_="warn") == [], "no warning above the result, unless it was interrupted"


def test_names_of_rows_don_t_cover_each_other() -> None:
    page = shown(a_replay(a_run(nodes=50, hours=24), nodes=50, hours=24))
    heat = next(each for each in page.all("svg") if "map" in each.attributes["class"].split())
    ys = [float(each.attributes["y"]) for each in heat.all("text") if each.text.startswith("node-")]
    assert len(ys) == 50
    assert min(lower - upper for upper, lower in pairwise(ys)) >= 13


def test_cpu_of_a_pod_is_in_millicores(text: str) -> None:
    first = read_page(text).one("div", aria_label="Evictions of policy.yaml").one("tbody").all("tr")[0]
    assert re.fullmatch(r"\d+m", first.all("td", class_="number")[0].text)


def test_heat_maps_show_each_node_before_and_after(text: str) -> None:
    page = read_page(text)
    maps = [each for each in page.all("svg") if "map" in each.attributes["class"].split()]
    assert len(maps) == 3
    for each in maps:
        assert len(each.all("rect", class_="row")) == 8
    cells = [sum(len(path.attributes["d"]) for path in each.all("path", class_="hot3")) for each in maps]
    assert cells[0] > cells[1] > 0, "more hot time as recorded than with the policy"
    rows = [[each.text for each in row.all("rect", class_="row")] for row in maps[:2]]
    assert "node-0 general: 21 hot hours" in rows[0]
    assert "node-0 general: 7 hot hours" in rows[1]


def test_a_node_that_was_not_there_has_no_colour() -> None:
    replay = a_replay(hours=24)
    replay.as_recorded.share[5, :] = np.nan
    page = shown(replay)
    first = next(each for each in page.all("svg") if "map" in each.attributes["class"].split())
    rows = {int(row) for path in first.all("path") for row in re.findall(r"M\d+ (\d+)", path.attributes.get("d", ""))}
    names = [each.text.split()[0] for each in first.all("rect", class_="row")]
    assert {names[row] for row in rows} == {f"node-{number}" for number in range(8)} - {"node-5"}


def test_the_frontier_is_there_with_several_policies(text: str) -> None:
    plot = read_page(text).one("svg", class_="frontier")
    titles = [each.text for each in plot.all("circle")]
    assert sorted(titles) == [
        "as recorded: 0 evictions, 42 hot node-hours",
        "other.yaml: 3 evictions, 14 hot node-hours",
        "policy.yaml: 14 evictions, 7 hot node-hours",
    ]
    assert len(plot.all("circle", class_="best")) == 3
    assert shown(a_replay()).all("svg", class_="frontier") == []


def test_evictions_are_a_timeline_and_a_table(text: str) -> None:
    page = read_page(text)
    over = page.all("svg", class_="over")
    assert len(over) == 2
    assert "14 evictions, at most 1 in 30 minutes" in over[0].text
    bars = over[0].one("path", class_="bars").attributes["d"]
    assert bars.count("M") == 14
    table = page.one("div", aria_label="Evictions of policy.yaml").one("tbody")
    assert len(table.all("tr")) == 14
    assert "Mon 21 Sep 09:00 UTC" in table.all("tr")[0].text


def test_five_thousand_nodes_still_open() -> None:
    replay = a_replay(a_run(nodes=5000, hours=24, evictions=900), nodes=5000, hours=24)
    page = render_replay(replay, now=NOW)
    assert len(page) < 3_000_000
    wording = read_page(page).one("main").text
    assert "200 of 5000 nodes: those with most hot time." in wording
    assert "The first 500 of 900 evictions" in wording


def test_an_interrupted_replay_says_until_when() -> None:
    wording = shown(a_replay(a_run(until=START + 36 * HOUR))).one("main").text
    assert "Interrupted: all figures are until Tue 22 Sep 12:00 UTC, not Mon 28 Sep 00:00 UTC" in wording


@pytest.mark.parametrize("runs", [(), (a_run(until=START),)])
def test_a_replay_that_was_interrupted_at_once_is_still_a_page(runs: tuple[ReplayRun, ...]) -> None:
    replay = replace(a_replay(), runs=runs)
    assert "interrupted" in shown(replay).one("main").text.lower()


def test_names_on_the_page_are_text() -> None:
    hostile = "<script>alert(1)</script>"
    replay = replace(a_replay(a_run(hostile)), nodes=(hostile, *a_replay().nodes[1:]), cluster=hostile)
    page = shown(replay)
    assert page.all("script") == []
    assert hostile in page.one("main").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_readable_in_a_browser(
    scheme: str, width: int, text: str, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "replay.html"
    file.write_text(text)
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 844})  # type: ignore[arg-type]
    try:
        page, asked, complaints = context.new_page(), list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(file.as_uri())
        for each in page.locator("summary").all():
            each.focus()
            page.keyboard.press("Enter")
        assert page.locator("details[open]").count() == page.locator("details").count() > 3
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert hot_colour(page) != colour_of(page, ".map path.h4")
        assert asked == [file.as_uri()]
        assert complaints == []
        violations = Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["target"]) for each in violations] == []
    finally:
        context.close()


def hot_colour(page: Page) -> str:
    return colour_of(page, ".map path.hot3")


def colour_of(page: Page, selector: str) -> str:
    return str(page.locator(selector).first.evaluate("each => getComputedStyle(each).stroke"))
