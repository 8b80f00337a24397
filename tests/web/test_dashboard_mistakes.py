"""Pages of what can't be shown: hostile names, unknown objects, wrong addresses, failed parts."""

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.decisions.limits import Pause, Scope
from rebalancer.model.errors import ConnectError
from rebalancer.model.records.cycles import RefusalExample
from tests.web.builders import (
    CYCLE,
    a_cycle_line,
    a_move,
    a_node,
    a_node_page,
    a_refusal,
)
from tests.web.fakes import Answer, Daemon
from tests.web.readers import faults, links, read_page
from tests.web.scenarios import HandMade
from tests.web.test_dashboard import get, page_of, views

__all__ = ["get", "views"]

HOSTILE = """<img src=x onerror=alert(1)>"'&{{7*7}}/..%2f"""


def test_names_from_outside_are_text_wherever_they_stand(
    views: HandMade, daemon: Daemon, get: Callable[[str], Answer]
) -> None:
    node = a_node(HOSTILE, 0.912, pool=HOSTILE, soft_tainted=HOSTILE, problem=HOSTILE)
    views.cluster = HOSTILE
    views.nodes = [node]
    views.pauses = (Pause(scope=Scope("service", HOSTILE), reason=HOSTILE, created_by=HOSTILE, until=None),)
    views.open_breakers = (HOSTILE,)
    fields = ("node", "namespace", "pod", "service", "reason", "detail", "code", "replacement_node")
    views.moves = [a_move(**dict.fromkeys(fields, HOSTILE))]
    example = RefusalExample(pod=HOSTILE, message=HOSTILE, cpu_millicores=1.0)
    views.refusals = [replace(a_refusal(node=HOSTILE, examples=(example,)), code=HOSTILE)]
    views.cycle_lines = [a_cycle_line(notes=(HOSTILE,), stopped=HOSTILE, trigger=HOSTILE)]
    of_node = {"evictions": tuple(views.moves), "refusals": tuple(views.refusals), "plan": HOSTILE}
    views.pages = {HOSTILE: a_node_page(node, **of_node)}
    paths = ("/", "/nodes", f"/nodes/{quote(HOSTILE, safe='')}", "/cycles", f"/cycles/{CYCLE}", "/limits")
    for path in (*paths, f"/services/{quote(HOSTILE, safe='')}", f"/nodes?q={quote('<img src=x>')}"):
        answer = get(path)
        page = page_of(answer)
        assert faults(page) == [], path
        assert page.all("img") == [], path
        assert HOSTILE in page.one("head").one("title").text, path
    assert "/nodes/" + quote(HOSTILE, safe="") in links(page_of(get("/")))
    missing = get(f"/cycles/{quote(HOSTILE, safe='')}")
    assert missing.status == 404
    assert read_page(missing.body).all("img") == []


@pytest.mark.parametrize("path", ["/nodes/unknown", "/nodes/", "/cycles/none", "/cycles/", "/services/shop%2Fnone"])
def test_what_is_not_known_is_a_page_that_says_so(path: str, get: Callable[[str], Answer]) -> None:
    answer = get(path)
    assert answer.status == 404
    page = read_page(answer.body)
    assert faults(page) == []
    assert "/" in links(page)
    assert page.one("h1").text.startswith("No such")


@pytest.mark.parametrize(
    ("path", "wording"),
    [
        ("/cycles?before=soon", "before: expected seconds since 1970"),
        ("/cycles?after=nan", "after: expected"),
        ("/cycles?before=-1", "before: expected"),
        ("/?first=-3", "first: expected a number"),
        ("/nodes?first=9999999999", "first: expected a number"),
        ("/nodes?state=warm", "state: expected hot, expected, cool, unknown"),
        ("/cycles?last=2h", "last: expected 1h, 6h, 24h, 7d, 30d, all"),
        ("/services?days=0", "days: expected 1 to 366"),
        ("/reports?days=1e3", "days: expected 1 to 366"),
        ("/reports?by=node", "by: expected cluster, pool, strategy, trigger"),
    ],
)
def test_an_address_that_makes_no_sense_is_answered_400(
    path: str, wording: str, views: HandMade, get: Callable[[str], Answer]
) -> None:
    answer = get(path)
    assert answer.status == 400
    assert wording in read_page(answer.body).one("main").text
    assert views.calls == []


def test_objects_that_cannot_be_read_are_named_with_their_cause(views: HandMade, get: Callable[[str], Answer]) -> None:
    assert "can't be read" not in page_of(get("/")).one("main").text
    views.obstacles = tuple(
        Obstacle(kind="Pod", namespace="shop", name=f"web-{number}", cause="<b>request</b> of cpu: 1e400")
        for number in range(60)
    )
    page = page_of(get("/"))
    text = page.one("main").text
    assert "60 objects can't be read or are ambiguous" in text
    assert "Pod shop/web-0: <b>request</b> of cpu: 1e400" in text
    assert "web-49" in text
    assert "web-50" not in text
    assert "10 more: rebalancer status" in text
    assert faults(page) == []


def test_without_the_database_the_map_is_shown_and_the_rest_says_why_not(
    views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.fails = ConnectError("postgresql://db/rebalancer: connection refused")
    overview = page_of(get("/"))
    assert len(overview.all("a", class_="tile")) == 2
    assert "The database is not available: postgresql://db/rebalancer: connection refused" in overview.one("main").text
    for path in ("/cycles", f"/cycles/{CYCLE}", "/nodes/node-1", "/limits", "/services", "/reports"):
        answer = get(path)
        assert answer.status == 503
        page = read_page(answer.body)
        assert "connection refused" in page.one("main").text
        assert faults(page) == []


def test_a_mistake_of_ours_is_a_page_without_a_traceback(
    views: HandMade, get: Callable[[str], Answer], caplog: pytest.LogCaptureFixture
) -> None:
    views.fails = ZeroDivisionError("a secret of the code")
    answer = get("/limits")
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "a secret of the code" in caplog.text


def test_a_page_that_fails_is_a_failed_part_until_it_is_shown(
    daemon: Daemon, views: HandMade, get: Callable[[str], Answer]
) -> None:
    views.fails = ZeroDivisionError("a mistake of ours")
    get("/limits")
    (failed,) = daemon.parts.current()
    assert (failed.name, failed.cause.partition(" (")[0]) == ("page /limits", "ZeroDivisionError: a mistake of ours")
    views.fails = None
    assert get("/limits").status == 200
    assert daemon.parts.current() == []


def test_an_error_in_the_head_of_a_page_is_an_answer_too(
    views: HandMade, get: Callable[[str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a secret of the code")

    monkeypatch.setattr(views, "head", broken)
    answer = get("/limits")
    assert (answer.status, answer.body) == (500, b"An internal error: See the log.\n")


def test_failed_parts_are_on_every_page(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.failed = ("thread journal, since 2026-11-26T02:24:34+00:00, once: <KeyError>",)
    for path in ("/", "/nodes", "/policy"):
        banner = page_of(get(path)).one("p", class_="banner").text
        assert " ".join(banner.split()) == f"Part failed: {views.failed[0]}"
