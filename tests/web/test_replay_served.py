"""The newest replay on the dashboard."""

from rebalancer.web import Auth
from rebalancer.web.pages.replay_page import render_replay
from tests.cli.builders import START, a_replay
from tests.web.fakes import Clients, Daemon
from tests.web.readers import links, read_page
from tests.web.scenarios import HandMade, the_app


def test_the_dashboard_links_the_newest_replay_where_there_is_one(daemon: Daemon, clients: Clients) -> None:
    views = HandMade()
    client = clients(the_app(views, daemon))
    assert "/replay" not in links(read_page(client.get("/").body))
    assert client.get("/replay").status == 404
    views.replay_page = render_replay(a_replay(), now=START).encode()
    assert "/replay" in links(read_page(client.get("/").body))
    answer = client.get("/replay")
    assert (answer.status, answer.body) == (200, views.replay_page)
    assert answer.headers["content-type"].startswith("text/html")
    allowed = answer.headers["content-security-policy"]
    assert "sandbox" in allowed
    assert "default-src 'none'; style-src 'unsafe-inline'" in allowed


def test_a_replay_is_as_closed_as_the_pages(daemon: Daemon, clients: Clients) -> None:
    views = HandMade(replay_page=b"secret")
    answer = clients(the_app(views, daemon, auth=Auth())).get("/replay")
    assert answer.status == 401
    assert b"secret" not in answer.body
