"""The dashboard's pages in Chromium, shown from hand-made views. The daemon's own are in tests/e2e."""

from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.web.builders import NOW, a_cluster, a_move, a_node, a_node_page
from tests.web.servers import BERLIN, Site
from tests.web.test_dashboard import PAGES


def test_a_time_in_a_message_is_local_and_has_its_day_unless_that_is_today(site: Site) -> None:
    line = a_node("node-1", 0.912)
    site.views.nodes, site.views.pages = [line], {"node-1": a_node_page(line)}
    with site.page() as page:
        page.goto("/")
        expect(page.get_by_text("peak 96% expected at 17:05, over 75% from 16:40")).to_be_visible()
        page.goto("/nodes/node-1")
        expect(page.get_by_text("peak 96% expected at 23 Sept 12:05, over 75% from 23 Sept 10:40")).to_be_visible()
        assert " UTC" not in page.locator("main").inner_text()
    with site.page(javascript=False) as page:
        page.goto("/")
        expect(page.get_by_text("peak 96% expected at 2026-09-22 15:05 UTC")).to_be_visible()


def test_an_eviction_appears_without_a_reload_and_nothing_else_moves(site: Site) -> None:
    site.views.nodes = [*a_cluster(40), a_node("node-1", 0.912)]
    line = site.views.nodes[-1]
    site.views.pages = {"node-1": a_node_page(line)}
    with site.page() as page:
        page.clock.install()
        page.goto("/nodes/node-1")
        loaded = page.evaluate("window.loaded = performance.timeOrigin")
        page.click("th button:has-text('Pod') >> nth=0")
        page.click("summary >> nth=0")
        link = page.locator("section[aria-labelledby=moves] tbody a[href^='/services/']").first
        link.focus()
        before = link.element_handle()
        rows = page.locator("section[aria-labelledby=moves] tbody tr")
        expect(rows).to_have_count(3)
        cooler = replace(line, share=0.611, state="cool")
        more = (a_move(pod="alpha-0", planned_at=NOW - 2), *site.views.pages["node-1"].evictions)
        site.views.pages = {"node-1": a_node_page(cooler, evictions=more)}
        page.clock.run_for(5_100)
        expect(rows).to_have_count(4)
        expect(page.locator("dl.facts")).to_contain_text("61.1%")
        assert "alpha-0" in rows.first.inner_text(), "sorted by pod as before"
        assert page.evaluate("window.loaded") == loaded
        assert page.evaluate("each => each === document.activeElement", before)
        assert page.locator("details[open]").count() == 1


def test_tiles_keep_their_focus_when_their_order_changes(site: Site) -> None:
    site.views.nodes = [a_node("node-1", 0.9), a_node("node-2", 0.5), a_node("node-3", 0.4)]
    with site.page() as page:
        page.clock.install()
        page.goto("/")
        page.focus("a.tile[title=node-3]")
        site.views.nodes = [a_node("node-3", 0.95), a_node("node-4", 0.9), a_node("node-1", 0.3)]
        page.clock.run_for(5_100)
        expect(page.locator("a.tile .who")).to_have_text(["node-3", "node-4", "node-1"])
        assert page.evaluate("document.activeElement.title") == "node-3"


def test_an_update_that_fails_says_so_and_leaves_the_page(site: Site) -> None:
    with site.page(answers="418") as page:
        page.clock.install()
        page.goto("/")
        page.route("**/*", lambda route: route.fulfill(status=418))
        page.clock.run_for(5_100)
        expect(page.locator("#missed")).to_have_text("not updated: HTTP 418")
        assert page.locator("a.tile").count() == 2
        page.unroute("**/*")
        page.clock.run_for(5_100)
        expect(page.locator("#missed")).to_have_text("")


def test_times_are_shown_in_the_zone_of_the_browser(site: Site) -> None:
    site.views.nodes = [a_node("node-1", 0.9, peak_share=0.95, peak_at=NOW + 7200)]
    with site.page() as page:
        page.goto("/")
        expect(page.locator("#shown-at")).to_have_text("15:00:00")
        expect(page.locator("#shown-at")).to_have_attribute("title", "2026-09-22 13:00:00 UTC")
        expect(page.locator("footer .zone")).to_have_text(BERLIN)
        expect(page.locator("a.tile .peak")).to_contain_text("17:00")
        page.goto("/nodes/node-1")
        ticks = page.locator("svg.curve text.tick[data-at]").all_text_contents()
        assert ticks == ["20:00", "02:00", "08:00", "14:00", "20:00", "02:00", "08:00", "14:00"]
    with site.page(javascript=False) as page:
        page.goto("/")
        expect(page.locator("#shown-at")).to_have_text("13:00:00")
        expect(page.locator("footer .zone")).to_have_text("UTC")


def test_a_full_bar_fills_its_track(site: Site) -> None:
    site.views.nodes = [a_node("node-1", 1.0), a_node("node-2", 0.5)]
    measure = "svg => [svg, ...svg.querySelectorAll('rect')].map(each => each.getBoundingClientRect().toJSON())"
    with site.page() as page:
        page.goto("/nodes")
        for number, share in enumerate((1.0, 0.5)):
            whole, track, fill = page.locator("tbody tr").nth(number).locator("svg.meter").first.evaluate(measure)
            assert track == whole
            assert fill["height"] == track["height"]
            assert fill["width"] == pytest.approx(track["width"] * share)
        page.goto("/reports")
        bar, card = (page.locator(each).first.bounding_box() for each in (".rate svg.meter", ".rate .big"))
        assert bar is not None
        assert card is not None
        assert bar["width"] == pytest.approx(card["width"])


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_no_fault_on_any_page(scheme: str, width: int, site: Site) -> None:
    site.views.nodes = [*a_cluster(12), a_node("node-1", 0.912), a_node("node-2", 0.4)]
    site.views.dry_run, site.views.open_breakers = True, ("2 late in pool general, 2 stop it",)
    found = {}
    with site.page(scheme=scheme, width=width) as page:
        for path in PAGES:
            page.goto(path)
            violations = Axe().run(page).response["violations"]
            if violations:
                found[path] = [(each["id"], each["impact"], each["nodes"][0]["target"]) for each in violations]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert found == {}
