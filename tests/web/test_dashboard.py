"""The dashboard's pages, shown from hand-made views."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from rebalancer.model.records.effect import Outcome
from rebalancer.web.pages.views import MOST_TILES, NodeSelection, NodeState, ResourceNow
from tests.web.builders import (
    CYCLE,
    DAY,
    NOW,
    a_cluster,
    a_move,
    a_node,
    a_node_page,
    a_pod,
    an_assessment,
)
from tests.web.fakes import Answer, AsgiClient, Clients, Daemon
from tests.web.readers import Element, faults, links, read_page
from tests.web.scenarios import HandMade, the_app

PAGES = (
    "/",
    "/?pool=general",
    "/nodes",
    "/nodes?state=hot",
    "/nodes/node-1",
    "/cycles",
    "/cycles?acted=1&before=1790000000",
    f"/cycles/{CYCLE}",
    "/limits",
    "/policy",
    "/search",
    "/search?q=o",
    "/evictions",
    "/evictions?last=30d",
    "/nodes/node-1?last=7d",
    "/services",
    "/services/shop%2Fcheckout",
    "/reports",
    "/reports?days=30&by=pool",
)
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def views() -> HandMade:
    return HandMade()


@pytest.fixture
def get(views: HandMade, daemon: Daemon, clients: Clients) -> Callable[[str], Answer]:
    """Ask as a browser does: what is percent-encoded in a path arrives decoded."""
    client = clients(the_app(views, daemon))

    def ask(path: str) -> Answer:
        return fetch(client, path)

    return ask


def fetch(client: AsgiClient, path: str) -> Answer:
    target, _, query = path.partition("?")
    assert "?" not in unquote(target), "the little client would take it for the query"
    return client.get(f"{unquote(target)}?{query}")


def page_of(answer: Answer) -> Element:
    assert answer.status == 200, answer.body.decode()
    return read_page(answer.body)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_landmarks_one_heading_and_nothing_from_elsewhere(
    path: str, get: Callable[[str], Answer]
) -> None:
    page = page_of(get(path))
    assert faults(page) == []
    assert page.one("html").attributes["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert page.one("main").attributes["id"] == "main"
    assert page.all("a", class_="skip")[0].attributes["href"] == "#main"
    assert page.all("nav")[0].attributes["aria-label"] == "Pages"
    assert "blue" in page.one("head").one("title").text


@pytest.mark.parametrize("path", PAGES)
def test_every_link_of_every_page_leads_to_a_page(path: str, get: Callable[[str], Answer]) -> None:
    for target in links(page_of(get(path))):
        if target.startswith("/"):
            assert get(target).status in (200, 303, 404), target
    known = [each for each in links(page_of(get(path))) if not each.startswith(("#", "/nodes/", "/services/"))]
    assert {get(each).status for each in known} == {200}


def test_a_decision_is_two_clicks_away_from_the_overview(get: Callable[[str], Answer]) -> None:
    tile = page_of(get("/")).all("a", class_="tile")[0]
    node = page_of(get(tile.attributes["href"]))
    [cycle] = {each for each in links(node) if each.startswith("/cycles/")}
    shown = page_of(get(cycle)).one("main").text
    for wording in (
        "checkout-6c9f7d5b8-x2x7k",
        "relieves the node of 10.3% cpu",
        "TooYoung",
        "younger than the minimum age",
    ):
        assert wording in shown


def test_a_cycle_says_what_its_evictions_remove_and_their_price(get: Callable[[str], Answer]) -> None:
    assert "38 hot node-minutes of the next hour, at a price of 1.2 ordinary evictions" in " ".join(
        page_of(get(f"/cycles/{CYCLE}")).one("main").text.split()
    )


def test_a_finding_by_another_resource_names_it_beside_its_share(get: Callable[[str], Answer]) -> None:
    shown = "".join(page_of(get(f"/cycles/{CYCLE}")).one("main").text.split())
    assert "memory" in shown
    assert "91.2%cpu" not in shown


def test_the_map_tells_in_words_and_numbers_what_it_tells_in_colours(
    views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.nodes = [
        a_node("hot", 0.912, peak_share=0.97, peak_at=NOW + 3600, soft_tainted="hot"),
        replace(a_node("soon", 0.41, peak_share=0.88, peak_at=NOW + 7200), state=NodeState.EXPECTED),
        a_node("closed", 0.2, cordoned=True, ready=False),
        a_node("silent", None, problem="no usage sample"),
    ]
    tiles = {each.attributes["title"]: each for each in page_of(get("/")).all("a", class_="tile")}
    heat = {"hot": "h9", "soon": "h4", "closed": "h2", "silent": "hx"}
    assert {name: tile.attributes["class"].split()[1] for name, tile in tiles.items()} == heat
    assert "91%" in tiles["hot"].text
    assert "97%" in tiles["hot"].text
    assert "14:00" in tiles["hot"].text
    assert [each.text for each in tiles["hot"].all("span", class_="tag")] == ["hot", "soft taint"]
    assert [each.text for each in tiles["soon"].all("span", class_="tag")] == ["expected hot"]
    assert [each.text for each in tiles["closed"].all("span", class_="tag")] == ["cordoned", "not Ready"]
    assert "unknown" in tiles["silent"].text


def test_the_overview_says_who_leads_what_stops_evictions_and_what_is_due(
    views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.open_breakers = ("2 late in pool general, 2 stop it",)
    views.leads = False
    page = page_of(get("/"))
    text = page.one("main").text
    assert "follows node-a holds the lease" in page.one("footer").text
    for wording in (
        "Circuit breaker open: 2 late in pool general, 2 stop it",
        "Paused: pool batch by ada, until 14:00:00: load test",
        "13:11:40 in 11m40s node-2: peak 96% expected at 2026-09-22 15:05 UTC",
        "not in time node-1: no window opens in time",
        "3 more nodes are expected to become hot",
        "shop/<b>web</b>-1 grows by 60 MiB an hour",
        "4 more pods leak memory",
        "12:58:55 1m5s ago alert",
    ):
        assert wording in text


def test_of_5000_nodes_the_hottest_500_are_tiles_and_the_rest_is_counted(
    views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.nodes = a_cluster(5000)
    page = page_of(get("/"))
    shown = [each.attributes["title"] for each in page.all("a", class_="tile")]
    assert sorted(shown) == sorted(line.name for line in views.nodes[:MOST_TILES])
    rest = [each.text for each in page.all("p", class_="rest")]
    assert sum(int(each.split()[0]) for each in rest) == 5000 - MOST_TILES
    pool = page_of(get("/?pool=batch"))
    members = [line.name for line in views.nodes if line.pool == "batch"]
    assert [each.attributes["title"] for each in pool.all("a", class_="tile")] == members[:MOST_TILES]
    cooler = next(each for each in links(pool) if "first=500" in each)
    assert [each.attributes["title"] for each in page_of(get(cooler)).all("a", class_="tile")] == members[500:1000]


def test_a_long_table_of_nodes_comes_in_parts(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.nodes = a_cluster(1200)
    names, path = [], "/nodes"
    while True:
        page = page_of(get(path))
        names += [row.all("a")[0].text for row in page.one("tbody").all("tr")]
        more = [
            each for each in page.one("nav", aria_label="Parts of the table").all("a") if each.text == "cooler ones"
        ]
        if not more:
            break
        path = more[0].attributes["href"]
    assert names == [line.name for line in views.nodes]


def test_what_is_asked_reaches_the_views(views: HandMade, get: Callable[[str], Answer]) -> None:
    get("/nodes?pool=batch&state=hot&q=de-1&first=500")
    get("/nodes?pool=&state=&q=")  # as the form sends it with nothing chosen
    get("/cycles?before=1790000000.5")
    get("/cycles?after=1790000000&acted=1")
    get("/services?days=90&q=shop")
    get("/reports")
    get("/reports?days=30&by=trigger")
    assert views.calls == [
        ("map", NodeSelection(pool="batch", state=NodeState.HOT, text="de-1", first=500)),
        ("map", NodeSelection()),
        ("cycles", 1790000000.5, None, False),
        ("cycles", None, 1790000000.0, True),
        ("services", 90, "shop"),
        ("reports", 7, None),
        ("reports", 30, "trigger"),
    ]


def test_cycles_have_a_time_range_that_their_links_keep(views: HandMade, get: Callable[[str], Answer]) -> None:
    page = page_of(get("/cycles?last=6h"))
    assert views.calls == [("cycles", None, None, False, 6 * 3600.0)]
    assert {"/cycles?last=1h", "/cycles?last=all", "/cycles?acted=1&last=6h"} <= links(page)
    acted = links(page_of(get("/cycles?last=6h&acted=1")))
    assert {"/cycles?last=24h&acted=1", "/cycles?last=6h"} <= acted
    assert views.calls[1:] == [("cycles", None, None, True, 6 * 3600.0)]


def test_a_whole_name_in_the_search_field_leads_to_the_node(get: Callable[[str], Answer]) -> None:
    answer = get("/nodes?q=node-2")
    assert (answer.status, answer.headers["location"]) == (303, "/nodes/node-2")
    assert get("/nodes?q=node-").status == 200


def test_a_limit_of_which_nothing_is_used_is_no_row(get: Callable[[str], Answer]) -> None:
    page = get("/limits").body.decode()
    table, _, below = page.partition('<section aria-labelledby="limits">')[2].partition("<details>")
    assert "5 in flight" in table
    assert "node-7" not in table
    assert "Nothing is used of 1 limit" in below
    assert "node-7" in below


def test_pages_update_themselves_unless_that_is_switched_off(get: Callable[[str], Answer]) -> None:
    live = page_of(get("/cycles?acted=1"))
    assert live.one("body").attributes["data-refresh"] == "5"
    assert live.all("noscript") == []
    assert {"/cycles?acted=1&refresh=30", "/cycles?acted=1&refresh=off"} <= links(live)
    slower = page_of(get("/cycles?acted=1&refresh=30"))
    assert slower.one("body").attributes["data-refresh"] == "30"
    assert slower.one("noscript").all("meta")[0].attributes == {"http-equiv": "refresh", "content": "30"}
    still = page_of(get("/cycles?acted=1&refresh=off"))
    assert "data-refresh" not in still.one("body").attributes
    assert still.all("noscript") == []
    assert page_of(get("/cycles?refresh=1")).one("body").attributes["data-refresh"] == "5"


def test_every_time_is_marked_up_in_utc(get: Callable[[str], Answer]) -> None:
    times = page_of(get("/nodes/node-1")).all("time")
    assert times
    for each in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each.attributes["datetime"])
        assert each.attributes["title"].endswith(" UTC")
        assert each.attributes["data-form"] in ("clock", "minute", "day")


def test_one_field_searches_nodes_pods_and_services(views: HandMade, get: Callable[[str], Answer]) -> None:
    form = page_of(get("/")).one("form", role="search")
    assert form.attributes["action"] == "/search"
    assert form.one("label").text == "Find a node, pod or service"
    page = page_of(get("/search?q=checkout"))
    assert [each.text for each in page.all("h2")] == ["Pods", "Services", "Evictions"]
    assert {"/nodes/node-1#pods", "/services/shop%2Fcheckout", f"/cycles/{CYCLE}"} <= links(page)
    assert "7 more: enter a longer part of the name." in page.one("main").text
    assert [each.text for each in page_of(get("/search?q=de-2")).all("h2")] == ["Nodes"]
    assert (get("/search?q=node-2").status, get("/search?q=node/node-2").headers["location"]) == (303, "/nodes/node-2")
    assert get("/search?q=no/node-2").headers["location"] == "/nodes/node-2"
    get("/search?q=pod/checkout")
    assert views.calls[-1] == ("search", "checkout")
    assert "No node, pod or service has such a name" in page_of(get("/search?q=nothing")).one("main").text
    asked = len(views.calls)
    assert "Enter a part of a name." in page_of(get("/search?q=+")).one("main").text
    assert len(views.calls) == asked


def test_a_node_says_why_it_is_hot_and_why_its_pods_stay(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.pods = (a_pod(), a_pod("web-0", code="DaemonSetPod"), a_pod("web-1", code="TooYoung", refused_at=NOW - 300))
    page = page_of(get("/nodes/node-1"))
    why = page.one("section", aria_labelledby="why").text
    for wording in (
        "Hot: CPU 91.2% is over high 75%. 4192m are above the target 65%.",
        "Last finding, 1m5s ago, cycle of 12:58:55: real CPU 91.2% is over high 75% (alert NodeHot)",
        "1 of 3 pods may be evicted; 2 stay: DaemonSetPod 1, TooYoung 1.",
    ):
        assert wording in why
    rows = [each.text for each in page.one("section", aria_labelledby="pods").one("tbody").all("tr")]
    assert [each.partition("3h")[2].strip() for each in rows] == [
        "may be evicted",
        "DaemonSetPod a DaemonSet pod would come back to the same node",
        "TooYoung younger than the minimum age 5m ago",
    ]


def test_evictions_of_all_nodes_with_before_and_after(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.moves = [a_move(), a_move(node="node-2", pod="cart-0", planned_at=NOW - 5000)]
    unknown = {"node": "node-3", "after_share": None, "outcome": Outcome.UNKNOWN}
    waiting = {"node": "node-2", "assessed_at": None, "after_share": None, "outcome": None}
    views.moves.append(a_move(node="node-3", pod="cart-1", planned_at=NOW - 6000))
    views.reliefs = (an_assessment(), an_assessment(**waiting), an_assessment(**unknown))
    page = page_of(get("/evictions"))
    picture = page.one("svg", class_="timeline")
    assert [each.one("title").text for each in picture.all("g", class_="relief")] == [
        "node-1: cpu 91.2% before, 69.4% after",
        "node-2: cpu 91.2% before, 70.6% planned",
        "node-3: cpu 91.2% before, 70.6% planned",
    ]
    assert len(picture.all("g", class_="mark")) == 3
    rows = [each.text for each in page.one("section", aria_labelledby="nodes").one("tbody").all("tr")]
    assert "91.2% 70.6% 69.4% 65% tooFewEvicted" in rows[0]
    assert "not assessed yet" in rows[1]
    assert "not known" in rows[2]
    assert "cart-0" in page.one("section", aria_labelledby="moves").text
    assert len(page_of(get("/evictions?last=1h")).one("svg", class_="timeline").all("g", class_="mark")) == 1
    assert ("timeline", 3600.0) in views.calls
    views.moves = []
    assert "None in this time." in page_of(get("/evictions")).one("main").text


def test_a_time_range_is_chosen_for_a_node(views: HandMade, get: Callable[[str], Answer]) -> None:
    page = page_of(get("/nodes/node-1?last=7d"))
    assert ("node", "node-1", 7 * DAY) in views.calls
    assert page.one("nav", aria_label="Time range").text == "last 6h 24h 7d"
    assert page.one("nav", aria_label="Time range").one("b").text == "7d"
    assert "/nodes/node-1?last=6h" in links(page)
    assert get("/nodes/node-1?last=1y").status == 400


def test_the_policy_in_force_shows_each_value_and_where_it_is_from(get: Callable[[str], Answer]) -> None:
    page = page_of(get("/policy"))
    rows = [[cell.text for cell in row.children if isinstance(cell, Element)] for row in page.all("tr")]
    assert ["pools[general].thresholds.high", "75", "line 8"] in rows
    assert ["guards.minAge", "5m", "default"] in rows
    assert [each.text for each in page.all("h2")] == ["document", "pools", "guards"]


def test_pages_link_grafana_the_runbook_and_the_reasons(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.open_breakers = ("2 late in pool general, 2 stop it",)
    views.pods = (a_pod(code="TooYoung"),)
    assert not [each for path in PAGES for each in links(page_of(get(path))) if "://" in each]
    views.grafana, views.docs = "https://grafana/d/rebalancer", "https://host/blob/main"
    runbook, reasons = (f"{views.docs}/docs/{path}.md" for path in ("operations/runbook", "reference/reasons"))
    assert all({views.grafana, runbook} <= links(page_of(get(path))) for path in PAGES)
    assert f"{runbook}#rebalancercircuitbreakeropen" in links(page_of(get("/")))
    assert {f"{runbook}#nodecpuhigh", f"{reasons}#tooyoung"} <= links(page_of(get("/nodes/node-1")))
    sections = re.findall(r"^## (\w+)$", (DOCS / "operations" / "runbook.md").read_text(), flags=re.M)
    codes = re.findall(r'<a id="(\w+)">', (DOCS / "reference" / "reasons.md").read_text())
    linked = {each.partition("#") for path in PAGES for each in links(page_of(get(path))) if "://" in each}
    assert {anchor for page, _, anchor in linked if page == runbook} <= {"", *(each.lower() for each in sections)}
    assert {anchor for page, _, anchor in linked if page == reasons} <= set(codes)


def test_dry_run_is_a_banner_on_every_page(views: HandMade, get: Callable[[str], Answer]) -> None:
    assert all(page_of(get(path)).all("p", class_="banner") == [] for path in PAGES)
    views.dry_run = True
    for path in PAGES:
        [banner] = page_of(get(path)).one("main").all("p", class_="banner")
        assert banner.text == "Dry run: this daemon plans and records evictions, and evicts nothing."


def test_the_page_that_is_shown_is_marked_in_the_navigation(get: Callable[[str], Answer]) -> None:
    for path, name in (("/", "Overview"), ("/limits", "Limits"), ("/cycles?acted=1", "Cycles")):
        assert page_of(get(path)).one("a", aria_current="page").text == name
    assert page_of(get("/nodes/node-1")).one("nav", aria_label="Pages").one("a", class_="within").text == "Nodes"


def test_a_node_that_left_the_cluster_still_has_its_past(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.pages = {"old": a_node_page(a_node("old", None, pool=""), gone=True, at=None, plan="")}
    page = page_of(get("/nodes/old"))
    assert "not in the cluster" in page.one("main").text
    assert "checkout-6c9f7d5b8-x2x7k" in page.one("main").text


def test_the_curve_stands_in_a_table_too(get: Callable[[str], Answer]) -> None:
    page = page_of(get("/nodes/node-1"))
    table = page.one("details").one("table")
    rows = [[cell.text for cell in row.children if isinstance(cell, Element)] for row in table.one("tbody").all("tr")]
    assert len(rows) == 48
    assert rows[0][1].endswith("%")
    assert (rows[0][2], rows[-1][1]) == ("-", "-")
    assert rows[-1][2].endswith("%")
    picture = page.all("svg", class_="curve")[0]
    assert picture.all("title")[0].text == "CPU of node-1"
    [mark] = picture.all("g", class_="mark")
    assert mark.one("text").text == "2"  # the third was refused


def test_the_pages_of_nodes_show_each_resource(views: HandMade, get: Callable[[str], Answer]) -> None:
    resources = (ResourceNow(resource="memory", share=0.91, high=0.8),)
    views.nodes = [a_node("full", 0.3, resources=resources, state=NodeState.HOT)]
    page = page_of(get("/nodes"))
    assert "memory now" in [each.text for each in page.all("th")]
    cells = [each.text for each in page.one("tbody").all("td")]
    assert "hot by memory" in cells
    assert {"91%", "80%"} <= {each.strip() for each in cells}
    node = page_of(get("/nodes/full"))
    assert "memory now" in [each.text for each in node.all("dt")]


def test_a_replacement_that_no_cycle_has_seen_ready_yet_is_shown_as_of_the_last_cycle(
    views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.moves = [a_move(replaced_at=None, replacement_pod="", replacement_node="")]
    for path in ("/nodes/node-1", f"/cycles/{CYCLE}"):
        assert "not yet at the last cycle" in page_of(get(path)).one("main").text
