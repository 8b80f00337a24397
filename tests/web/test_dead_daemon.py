"""A page says when its daemon does not answer, in Chromium."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.servers import Site


def colourless(page: Page) -> bool:
    return bool(page.evaluate("getComputedStyle(document.querySelector('main')).filter === 'grayscale(1)'"))


@pytest.mark.parametrize("path", ["/", "/policy?refresh=off", "/nodes/nobody"])
def test_a_killed_daemon_is_a_banner_over_the_page(path: str, site: Site) -> None:
    with site.page(answers="Failed to load resource") as page:
        page.clock.install()
        page.goto(path)
        page.clock.run_for(5_100)
        expect(page.locator("#dead")).to_be_hidden()
        assert not colourless(page)
        assert site.server.stop(1.0)
        page.clock.run_for(5_100)
        expect(page.locator("#dead")).to_contain_text("it can't be reached. This page shows how things were then.")
        expect(page.locator("#dead")).to_be_in_viewport()
        assert colourless(page)


def test_a_daemon_that_is_silent_for_15_seconds_is_a_banner_until_it_answers(site: Site) -> None:
    with site.page(answers="net::ERR") as page:
        page.clock.install()
        page.goto("/?refresh=off")
        page.route("**/livez", lambda _: None)
        page.clock.run_for(14_000)
        expect(page.locator("#dead")).to_be_hidden()
        page.clock.run_for(1_500)
        expect(page.locator("#dead")).to_contain_text("it does not answer")
        page.unroute("**/livez")
        page.clock.run_for(5_100)
        expect(page.locator("#dead")).to_be_hidden()
        assert not colourless(page)


def test_a_daemon_that_answers_that_it_is_not_alive_is_a_banner(site: Site) -> None:
    with site.page(answers="503") as page:
        page.clock.install()
        page.goto("/limits")
        site.daemon.is_alive = False
        page.clock.run_for(5_100)
        expect(page.locator("#dead")).to_contain_text("HTTP 503")


def test_a_proxy_that_wants_credentials_is_no_dead_daemon(site: Site) -> None:
    with site.page(answers="401") as page:
        page.clock.install()
        page.goto("/")
        page.route("**/livez", lambda route: route.fulfill(status=401))
        with page.expect_response("**/livez"):
            page.clock.run_for(5_100)
        expect(page.locator("#dead")).to_be_hidden()
