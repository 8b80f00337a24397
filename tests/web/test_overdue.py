"""A leader without a cycle in time says so on each page."""

from tests.web.fakes import Clients, Daemon
from tests.web.readers import read_page
from tests.web.scenarios import HandMade, the_app

LATE = "the last one ended 900s ago, one is due every 120s"


def test_a_leader_without_a_cycle_in_time_says_so_on_each_page(clients: Clients, daemon: Daemon) -> None:
    shown = HandMade()
    client = clients(the_app(shown, daemon))
    paths = ("/nodes", "/limits", "/policy", "/nodes/nobody")
    for overdue, banners in (("", []), (LATE, [f"No cycle in time: {LATE}"])):
        shown.overdue = overdue
        pages = [read_page(client.get(path).body) for path in paths]
        assert [[each.text for each in page.all("p", class_="banner")] for page in pages] == [banners] * len(paths)
    assert read_page(client.get("/").body).all("p", class_="banner") == [], "it is in the verdict there"
