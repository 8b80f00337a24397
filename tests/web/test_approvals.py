"""Signed links to proposals: opening one changes nothing, its button decides, once; any other link does nothing."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rebalancer.model.decisions.approval_links import ApprovalLinks
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.model.errors import ConnectError
from rebalancer.store import SqlProposals, open_engine, upgrade
from rebalancer.web import Auth, WebServer, make_app
from rebalancer.web.pages.proposals import Approvals
from tests.store.builders import NOW, SteppingClock
from tests.store.test_proposals import THERE, a_plan
from tests.web.fakes import Answer, AsgiClient, Clients, Daemon
from tests.web.readers import read_page
from tests.web.scenarios import HandMade

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLUSTER = "blue"
KEY = b"0123456789abcdef0123456789abcdef"
FORM = {"content-type": "application/x-www-form-urlencoded", "origin": "http://127.0.0.1:2"}


@dataclass
class Door:
    """The web server before a real database."""

    app: Any
    client: AsgiClient
    kept: SqlProposals
    links: ApprovalLinks
    clock: SteppingClock
    daemon: Daemon

    def propose(self, pool: str = "a", seconds: float = 600.0, *numbers: int) -> Proposal:
        plan = a_plan(*(numbers or (1, 2)), pool=pool)
        [made] = self.kept.propose("c1", [(plan, True)], pods=THERE, valid_seconds=seconds)
        return made

    def press(self, link: str, **headers: str) -> Answer:
        return self.client.send("POST", link, headers={**FORM, **headers})

    def state(self, proposal: Proposal) -> ProposalState:
        found = self.kept.named(proposal.id)
        assert found is not None
        return found.state


@pytest.fixture
def door(tmp_path: Path, daemon: Daemon, clients: Clients) -> Any:
    url, clock = f"sqlite:///{tmp_path / 'db'}", SteppingClock()
    upgrade(url)
    engine = open_engine(url)
    kept = SqlProposals(engine=engine, cluster=CLUSTER, clock=clock)
    links = ApprovalLinks(key=KEY, base="https://rebalancer.example")
    approvals = Approvals(desk=kept, links=links, cluster=lambda: CLUSTER, now=clock.now, wake=daemon.wake)
    ports = daemon.ports(approvals=approvals, proposals=kept.all, views=HandMade())
    app = make_app(ports, auth=Auth(insecure_no_auth=True), metrics=daemon.metrics)
    yield Door(app=app, client=clients(app), kept=kept, links=links, clock=clock, daemon=daemon)
    engine.dispose()


def test_a_link_shows_the_proposal_and_its_button_approves_it(door: Door) -> None:
    proposal = door.propose()
    link = door.links.target(proposal, "approve")
    for _ in range(2):  # a preview by a chat program, then a person
        shown = door.client.get(link)
        assert shown.status == 200
        page = read_page(shown.body)
        assert [each.text for each in page.all("button")] == ["Approve"]
        assert all(move.full_name in page.one("main").text for move in proposal.plan.evictions)
    assert (door.state(proposal), door.daemon.woken) == (ProposalState.PROPOSED, 0)
    done = door.press(link)
    assert (done.status, door.state(proposal)) == (200, ProposalState.APPROVED)
    # the worker's wait ends: it begins without a delay
    assert door.daemon.woken == 1
    [approved] = door.kept.approved()
    assert approved.decided_by == "signed link"


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_a_link_is_used_once(action: Any, door: Door) -> None:
    proposal = door.propose()
    link = door.links.target(proposal, action)
    assert door.press(link).status == 200
    before = door.kept.named(proposal.id)
    for again in (door.press(link), door.client.get(link)):
        assert again.status == 410
        assert re.search(r"it was (approved|rejected) by signed link at ", again.body.decode())
    assert door.kept.named(proposal.id) == before
    assert door.daemon.woken == 1


def test_an_approval_can_be_taken_back_and_not_given_again(door: Door) -> None:
    proposal = door.propose()
    assert door.press(door.links.target(proposal, "approve")).status == 200
    assert door.press(door.links.target(proposal, "reject")).status == 200
    assert door.press(door.links.target(proposal, "approve")).status == 410
    assert door.state(proposal) is ProposalState.REJECTED


def test_a_link_ends_with_its_proposal(door: Door) -> None:
    late, other = door.propose(seconds=60.0), door.propose("b", 600.0)
    links = [door.links.target(late, "approve"), door.links.target(other, "approve")]
    new = door.propose("b", 600.0, 7)
    assert door.press(links[1]).status == 410
    assert door.state(other) is ProposalState.SUPERSEDED
    door.clock.sleep(60.0)
    answer = door.press(links[0])
    assert (answer.status, "The link expired at " in answer.body.decode()) == (410, True)
    assert door.state(new) is ProposalState.PROPOSED
    assert door.daemon.woken == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"content-type": "application/json"}, 415),
        ({"host": "rebalancer.example", "origin": "https://rebalancer.example", "sec_fetch_site": "same-origin"}, 200),
    ],
)
def test_the_button_is_pressed_on_our_own_page_alone(headers: dict[str, str], status: int, door: Door) -> None:
    proposal = door.propose()
    assert door.press(door.links.target(proposal, "approve"), **headers).status == status
    assert (door.state(proposal) is ProposalState.APPROVED) == (status == 200)


def test_a_browser_is_told_to_name_its_origin_and_to_keep_nothing(door: Door) -> None:
    shown = door.client.get(door.links.target(door.propose(), "approve"))
    headers = {name.lower(): value for name, value in shown.headers.items()}
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "form-action 'self'" in headers["content-security-policy"]


def altered(link: str, random: Random) -> str:
    """The link with one character replaced, removed or added."""
    at, letter = random.randrange(len("/approvals/"), len(link)), random.choice("0123456789abcdefghjk&=%+")
    return random.choice(
        (link[:at] + letter + link[at + 1 :], link[:at] + link[at + 1 :], link[:at] + letter + link[at:])
    )


def test_no_altered_or_forged_link_decides_anything(door: Door) -> None:
    """Hundreds of random links: each is refused in one line, unless it is the link itself."""
    random, first, second = Random(3), door.propose(), door.propose("b")
    link, swapped = door.links.target(first, "approve"), door.links.target(second, "approve")
    signature = link.rpartition("=")[2]
    strangers = ApprovalLinks(key=b"f" * 32)
    forged = [
        strangers.target(first, "approve"),
        link.replace("approve&", "reject&"),
        link.replace(first.id, second.id),
        swapped.replace(second.id, first.id),
        re.sub(r"expires=\d+", f"expires={int(NOW) + 10**6}", link),
        re.sub(r"signature=\w+", "signature=", link),
        re.sub(r"signature=\w+", f"signature={signature.upper()}", link),
        re.sub(r"signature=\w+", "signature=%C3%A9", link),
        link.partition("?")[0],
        door.links.target(replace(first, cluster="green"), "approve"),
        door.links.target(first, "approve").replace("action=approve", "action=delete"),
    ]
    for wrong in [*forged, *(altered(link, random) for _ in range(500))]:
        if wrong == link:
            continue
        for answer in (door.press(wrong), door.client.get(wrong)):
            assert answer.status in (200, 403, 404, 410), wrong
            if answer.status == 200:
                # the same parameters, written in another way: still a link of this proposal alone
                assert signature in wrong
                assert first.id in wrong
    assert door.state(second) is ProposalState.PROPOSED


def test_neither_key_nor_signature_is_logged(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    proposal = door.propose()
    link = door.links.target(proposal, "approve")
    for _ in range(2):
        door.press(link)
    door.client.get(link + "0")
    assert "by a signed link" in caplog.text
    assert link.rpartition("=")[2] not in caplog.text
    assert KEY.decode() not in caplog.text + repr(door.links)


def test_where_the_database_is_away_nothing_is_decided(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:

    proposal = door.propose()

    def away(_: str) -> Proposal:
        raise ConnectError("the database is away")

    monkeypatch.setattr(door.kept, "named", away)
    assert door.press(door.links.target(proposal, "approve")).status == 503
    monkeypatch.undo()
    assert door.state(proposal) is ProposalState.PROPOSED


def test_without_a_key_there_are_no_links(daemon: Daemon, clients: Clients) -> None:
    client = clients(make_app(daemon.ports(), auth=Auth(insecure_no_auth=True), metrics=daemon.metrics))
    assert client.get("/approvals/7bk2xw?action=approve&expires=1&signature=0").status == 404


def test_the_dashboard_lists_proposals_and_has_nothing_to_press(door: Door) -> None:
    assert "No proposal." in door.client.get("/proposals").body.decode()
    first, second = door.propose(), door.propose("b")
    door.kept.reject(first.id, by="bob", reason="a release")
    page = read_page(door.client.get("/proposals").body)
    rows = [each.text for each in page.all("tr")[1:]]
    assert [each.split()[0] for each in rows] == [second.id, first.id]
    assert "by bob: a release" in rows[1]
    assert all(move.full_name in rows[0] for move in second.plan.evictions)
    assert not [each for each in page.all("form") if each.attributes.get("method", "get") != "get"]


def test_the_dashboards_credentials_guard_the_list(daemon: Daemon, clients: Clients, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a secret token")
    auth = Auth(bearer_token_file=str(tmp_path / "token"))
    client = clients(make_app(daemon.ports(views=HandMade()), auth=auth, metrics=daemon.metrics))
    assert client.get("/proposals").status == 401


def test_a_browser_presses_the_button(door: Door, serve: Callable[..., WebServer], browser: "Browser") -> None:
    """Its request names the page's own origin, which depends on the page's headers."""
    proposal = door.propose()
    web = serve(door.app)
    page = browser.new_page()
    try:
        page.goto(f"{web.url}{door.links.target(proposal, 'approve')}")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Approved: the leader begins").wait_for(timeout=10_000)
    finally:
        page.close()
    assert door.state(proposal) is ProposalState.APPROVED
