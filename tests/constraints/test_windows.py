"""The windows of every scope: all must be open, and the refusal names the one that opens last."""

from datetime import UTC, datetime
from typing import Any

from rebalancer.constraints.moves.windows import (
    CHANGE_WINDOW,
    ChangeWindows,
    Outlook,
    Windowed,
    annotation_of,
    describe,
    next_opening,
)
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.windows import Window, WindowState, parse_change_window
from tests.builders import a_node, a_pod, cluster, pods_in

NIGHT = parse_change_window("allow 0 22 * * 1-5 8h Europe/Berlin")
FREEZE = parse_change_window("deny 0 0 24 12 * 72h Europe/Berlin")
NEVER = parse_change_window("deny * * * * * 1m")


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


SUNDAY = utc("2026-01-18 12:00")
NIGHT_TIME = utc("2026-01-19 23:00")


def a_book(**fields: Any) -> ChangeWindows:
    return ChangeWindows.of(cluster="east", **fields)


def refused(book: ChangeWindows, now: float, **fields: Any) -> tuple[Reason, str] | None:
    asked: dict[str, Any] = {"pool": "general", "level": "gold", "annotation": None, "service": "shop/cart", **fields}
    refusal = book.refuses(now=now, **asked)
    return None if refusal is None else (refusal.code, refusal.message.removeprefix("outside its change window: "))


def closed(scope: str, until: str = "closed until 2026-01-19 21:00 UTC") -> tuple[Reason, str]:
    return Reason.WINDOW_CLOSED, f"{scope}: {until}"


def test_a_book_without_windows_refuses_nothing() -> None:
    assert refused(a_book(), SUNDAY) is None
    assert a_book().windows == {}


def test_each_scope_closes_alone_and_says_in_its_own_zone_when_it_opens() -> None:
    assert refused(a_book(global_windows=NIGHT), SUNDAY) == closed("global")
    assert refused(a_book(cluster_windows=NIGHT), SUNDAY) == closed("cluster east")
    assert refused(a_book(pools={"general": NIGHT}), SUNDAY) == closed("pool general")
    assert refused(a_book(levels={"gold": NIGHT}), SUNDAY) == closed("level gold")
    text = "allow 0 22 * * 1-5 8h America/New_York"
    assert refused(a_book(), SUNDAY, annotation=text) == closed(
        "service shop/cart", "closed until 2026-01-20 03:00 UTC"
    )


def test_a_scope_that_the_move_does_not_touch_does_not_close_it() -> None:
    book = a_book(pools={"batch": NEVER}, levels={"bronze": NEVER})
    assert refused(book, SUNDAY) is None
    assert refused(book, SUNDAY, pool=None, level="") is None
    assert refused(book, SUNDAY, pool="batch") is not None


def test_all_scopes_must_be_open() -> None:
    book = a_book(global_windows=FREEZE, cluster_windows=NIGHT, pools={"general": NIGHT}, levels={"gold": NIGHT})
    assert refused(book, NIGHT_TIME, annotation="allow 0 22 * * 1-5 8h Europe/Berlin") is None
    assert refused(book, NIGHT_TIME, annotation="allow 0 1 * * * 1h Europe/Berlin") == closed(
        "service shop/cart", "closed until 2026-01-20 00:00 UTC"
    )


def test_of_several_closed_scopes_the_one_that_opens_last_is_named() -> None:
    book = a_book(global_windows=NIGHT, pools={"general": parse_change_window("allow 0 3 1 3 * 1h Europe/Berlin")})
    assert refused(book, SUNDAY) == closed("pool general", "closed until 2026-03-01 02:00 UTC")
    book = a_book(global_windows=NEVER, pools={"general": NIGHT})
    assert refused(book, SUNDAY) == closed("global", "closed, no change within 400 days")


def test_a_broken_annotation_closes_and_comes_before_all() -> None:
    code, message = refused(a_book(global_windows=NEVER), NIGHT_TIME, annotation="allow 0 25 * * * 8h") or (None, "")
    assert code is Reason.WINDOW_INVALID
    assert "service shop/cart: schedule: expected five cron fields" in message
    assert "bad hour, in 'allow 0 25 * * * 8h'" in message


def test_an_empty_annotation_is_broken_and_none_is_not() -> None:
    assert (refused(a_book(), NIGHT_TIME, annotation="") or (None,))[0] is Reason.WINDOW_INVALID
    assert refused(a_book(), NIGHT_TIME, annotation=None) is None


def test_a_scope_can_be_asked_for_its_state() -> None:
    book = a_book(global_windows=FREEZE, pools={"general": NIGHT})
    assert list(book.windows) == [Scope("global", ""), Scope("pool", "east/general")]
    state = book.state(Scope("pool", "east/general"), now=SUNDAY)
    assert (state.open, state.next_open) == (False, utc("2026-01-19 21:00"))
    assert book.state(Scope("node", "east/n1"), now=SUNDAY).open
    assert describe(state) == "closed until 2026-01-19 21:00 UTC"
    assert describe(book.state(Scope("pool", "east/general"), now=NIGHT_TIME)) == ("open until 2026-01-20 05:00 UTC")
    assert describe(WindowState(open=True, because="no windows")) == "open, no change within 400 days"


def test_the_same_windows_are_worked_out_once_for_each_now() -> None:
    book = a_book(
        pools={
            "general": NIGHT,
            "batch": tuple(Window.model_validate(each.model_dump(by_alias=True)) for each in NIGHT),
        }
    )
    first = book.state(Scope("pool", "east/general"), now=SUNDAY)
    assert book.state(Scope("pool", "east/batch"), now=SUNDAY) is first
    assert book.state(Scope("pool", "east/general"), now=NIGHT_TIME).open
    assert not book.state(Scope("pool", "east/general"), now=SUNDAY).open


def test_a_services_windows_are_found_on_its_pods() -> None:
    text = "allow 0 22 * * 1-5 8h Europe/Berlin"
    pods = [
        a_pod("a", "n1", owner="cart", template={"annotations": {CHANGE_WINDOW: text}}),
        a_pod("b", "n1", owner="web"),
    ]
    made = cluster([a_node("n1")], pods)
    assert [annotation_of(pod) for pod in pods_in(made)] == [text, None]


# --- Between two instants.

LATE_NIGHT = "allow 0 2 * * * 8h Europe/Berlin"
MONDAY = utc("2026-01-19 12:00")


def ahead(book: ChangeWindows, of: Windowed, *, hours: float = 24) -> list[str]:
    begins, ends = Outlook(book, now=MONDAY, end=MONDAY + 3600 * hours).open_spans(of)
    return [
        f"{datetime.fromtimestamp(begin, UTC):%a %H:%M} to {datetime.fromtimestamp(end, UTC):%a %H:%M}"
        for begin, end in zip(begins, ends, strict=True)
    ]


def test_they_are_open_together_while_every_scope_is() -> None:
    book = a_book(cluster_windows=NIGHT, pools={"general": parse_change_window("deny 0 3 * * * 1h Europe/Berlin")})
    assert ahead(book, Windowed("general", "", None)) == ["Mon 21:00 to Tue 02:00", "Tue 03:00 to Tue 05:00"]
    assert ahead(book, Windowed("other", "", None)) == ["Mon 21:00 to Tue 05:00"]
    assert ahead(book, Windowed(None, "gold", LATE_NIGHT)) == ["Tue 01:00 to Tue 05:00"]
    assert ahead(a_book(levels={"gold": NIGHT}), Windowed("general", "gold", None)) == ["Mon 21:00 to Tue 05:00"]
    assert ahead(a_book(global_windows=NIGHT), Windowed("general", "", None), hours=12) == ["Mon 21:00 to Tue 00:00"]
    assert ahead(a_book(), Windowed("general", "", None)) == ["Mon 12:00 to Tue 12:00"]
    assert ahead(a_book(), Windowed("general", "", "allow never")) == []


def test_the_window_that_opens_or_closes_them_is_known() -> None:
    outlook = Outlook(a_book(cluster_windows=NIGHT), now=MONDAY, end=MONDAY + 86_400)
    of = Windowed("general", "", LATE_NIGHT)
    assert outlook.decided_by(of, utc("2026-01-20 01:00"), opens=True) == parse_change_window(LATE_NIGHT)[0]
    assert outlook.decided_by(of, utc("2026-01-20 05:00"), opens=False) == NIGHT[0]


def test_the_next_opening_is_that_of_all_scopes_together() -> None:
    of = Windowed("general", "", LATE_NIGHT)
    late, freeze = parse_change_window(LATE_NIGHT)[0], FREEZE[0]
    assert next_opening(a_book(), of, now=MONDAY) == (utc("2026-01-20 01:00"), late)
    assert next_opening(a_book(cluster_windows=NIGHT), of, now=SUNDAY) == (utc("2026-01-20 01:00"), late)
    assert next_opening(a_book(cluster_windows=FREEZE), Windowed("general", "", None), now=utc("2026-12-24 12:00")) == (
        utc("2026-12-26 23:00"),
        freeze,
    )
    # far ahead, and never
    yearly = parse_change_window("allow 0 3 1 1 * 1h")
    assert next_opening(a_book(global_windows=yearly), of, now=MONDAY) == (utc("2027-01-01 03:00"), yearly[0])
    assert next_opening(a_book(global_windows=NEVER), of, now=MONDAY) is None
    assert next_opening(a_book(), Windowed("general", "", "allow never"), now=MONDAY) is None
