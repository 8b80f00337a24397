"""A dashboard that is served to Chromium."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rebalancer.web import WebServer
from tests.web.fakes import Daemon
from tests.web.scenarios import HandMade

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BERLIN = "Europe/Berlin"  # two hours ahead of UTC on the day of the views


@dataclass
class Site:
    """A served dashboard and what it shows."""

    views: HandMade
    daemon: Daemon
    server: WebServer
    browser: "Browser"

    @contextmanager
    def page(
        self, *, scheme: str = "light", width: int = 1280, javascript: bool = True, answers: str = "200"
    ) -> Iterator["Page"]:
        """A window of its own. A message on its console fails the test, unless it is about this status."""
        context = self.browser.new_context(
            base_url=self.server.url,
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 844},
            timezone_id=BERLIN,
            java_script_enabled=javascript,
        )
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        try:
            yield page
            assert [each for each in complaints if answers not in each] == []
        finally:
            context.close()
