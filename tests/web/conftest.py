"""Fixtures of the web server's tests."""

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rebalancer.web import WebServer
from tests.web.fakes import AsgiClient, Clients, Daemon
from tests.web.scenarios import HandMade, the_app
from tests.web.servers import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Makes clients that end with the test."""
    made: list[AsgiClient] = []

    def make(app: Any) -> AsgiClient:
        made.append(AsgiClient(app))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., WebServer]]:
    """Starts servers on free ports that end with the test."""
    started: list[WebServer] = []

    def start(app: Any, **options: Any) -> WebServer:
        web = WebServer(app, "127.0.0.1:0", **options)
        web.start()
        started.append(web)
        return web

    yield start
    for web in started:
        assert web.stop(1.0)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=60_000)
        yield opened
        opened.close()


@pytest.fixture
def site(browser: "Browser", daemon: Daemon) -> Iterator[Site]:
    views = HandMade()
    server = WebServer(the_app(views, daemon), "127.0.0.1:0")
    server.start()
    try:
        yield Site(views, daemon, server, browser)
    finally:
        server.stop(1.0)
