"""Pictures: where things stand in them, and what they say to those who can't see them."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rebalancer.web.pages import charts
from rebalancer.web.pages.charts import Column
from rebalancer.web.pages.plot import HEIGHT, Mark
from rebalancer.web.pages.render import static
from rebalancer.web.pages.views import Curve
from tests.web.builders import ACCOUNT, DAY, HOUR, NOW, a_node
from tests.web.readers import Element, faults, read_page


def a_curve(**fields: Any) -> Curve:
    given: dict[str, Any] = {
        "past": ((NOW - 1200, 0.4), (NOW, 0.5)),
        "source": "measured by cycles",
        "ahead": ((NOW, 0.5), (NOW + 1200, 0.9)),
        "now": NOW,
        "since": NOW - DAY,
        "until": NOW + DAY,
    }
    return Curve(**{**given, **fields})


def drawn(curve: Curve, *marks: Mark, **node: Any) -> Element:
    page = read_page(charts.curve(curve, a_node("node-1", 0.5, **node), marks))
    assert faults(page) == []
    return page.one("svg")


def points(path: Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path.attributes["d"])]


def middle(svg: Element) -> float:
    return float(svg.one("line", class_="now").attributes["x1"])


def test_time_runs_to_the_right_and_use_upwards() -> None:
    svg = drawn(a_curve())
    past = points(svg.one("path", class_="past"))
    assert past[1][0] == pytest.approx(middle(svg), abs=0.1)
    assert past[0][0] < past[1][0]
    assert past[0][1] > past[1][1]
    high = float(svg.one("line", class_="high").attributes["y1"])
    ahead = points(svg.one("path", class_="ahead"))
    assert ahead[0][1] > high > ahead[1][1]


def test_a_line_is_broken_where_nothing_was_known_for_half_an_hour() -> None:
    known = [(NOW - 5 * HOUR + 300 * step, 0.4) for step in range(6)]
    later = [(NOW - HOUR + 300 * step, None if step == 2 else 0.5) for step in range(6)]
    svg = drawn(a_curve(past=(*known, *later), ahead=()))
    assert [len(points(each)) for each in svg.all("path", class_="past")] == [6, 5]


def test_a_single_point_is_no_line_and_what_is_over_a_hundred_percent_stays_in_the_picture() -> None:
    assert drawn(a_curve(past=((NOW, 0.5),), ahead=())).all("path") == []
    svg = drawn(a_curve(ahead=((NOW, 0.9), (NOW + 1200, 1.31))))
    for _, y in points(svg.one("path", class_="ahead")):
        assert 0 <= y <= HEIGHT
    assert "150%" in svg.text


def test_the_highest_point_ahead_is_named_with_its_time() -> None:
    svg = drawn(a_curve(ahead=((NOW, 0.5), (NOW + HOUR, 0.9), (NOW + 2 * HOUR, 0.7))))
    assert svg.one("text", class_="peak-text").text == "90% at 14:00"


def test_evictions_at_nearly_the_same_time_are_one_mark_with_their_number() -> None:
    marks = [Mark(at=NOW - 3 * HOUR + second, text=f"shop/web-{second}") for second in range(3)]
    svg = drawn(a_curve(), *marks, Mark(at=NOW - HOUR, text="shop/db"), Mark(at=NOW - 3 * DAY, text="shop/old"))
    first, second = svg.all("g", class_="mark")
    assert first.one("text").text == "3"
    named = [f"2026-09-22 10:00 UTC shop/web-{second}" for second in range(3)]
    assert first.one("title").text == "; ".join(named)
    assert second.one("title").text == "2026-09-22 12:00 UTC shop/db"


def test_the_curve_is_described_in_words() -> None:
    svg = drawn(a_curve(), Mark(at=NOW - HOUR, text="shop/db"), peak_share=0.9, peak_at=NOW + HOUR)
    assert svg.one("desc").text == (
        "Now 50% of 16 cores. Measured between 40% and 50%. A peak of 90% is forecast for 2026-09-22 14:00 UTC. "
        "Hot above 75%. 1 evictions are marked."
    )


def test_names_in_pictures_are_text() -> None:
    hostile = '</title><script>alert(1)</script>"'
    curve = charts.curve(a_curve(), replace(a_node(), name=hostile), [Mark(at=NOW - 60, text=hostile)])
    assert read_page(curve).all("script") == []
    column = Column(label=hostile, value=1.0, text=hostile)
    picture = read_page(charts.columns([column], title=hostile, name='"><script>', top=1.0, scale=hostile))
    assert picture.all("script") == []


def test_the_account_leads_from_before_to_after_without_a_gap() -> None:
    svg = read_page(charts.account_bars(ACCOUNT, name="a", target=10_400.0)).one("svg")
    whole = svg.all("rect", class_="whole")
    before, after = (float(each.attributes["x"]) + float(each.attributes["width"]) for each in whole)
    steps = [each for each in svg.all("rect") if "whole" not in each.attributes["class"]]
    at = before
    for step, change in zip(steps, (-3300.0, -450.0, 310.0, 0.0, -120.0, 0.0, 0.0, 68.0), strict=True):
        left, width = float(step.attributes["x"]), float(step.attributes["width"])
        assert step.attributes["class"] == ("less" if change < 0 else "more")
        begin, end = (left, left + width) if change >= 0 else (left + width, left)
        assert begin == pytest.approx(at, abs=1.1)  # one that is thinner than a line is drawn as one
        at += change / ACCOUNT.before * (before - float(whole[0].attributes["x"]))
        assert end == pytest.approx(at, abs=1.1)
    assert at == pytest.approx(after, abs=1.5)
    assert [each.text for each in svg.all("text", class_="value")][:3] == ["14592m", "11100m", "-3300m"]


def test_an_account_that_does_not_know_everything_is_drawn() -> None:
    svg = read_page(charts.account_bars(replace(ACCOUNT, residual=math.nan), name="a")).one("svg")
    assert "nan" not in str([each.attributes for each in svg.walk()])


@pytest.mark.parametrize(("share", "width"), [(0.0, 0.0), (0.5, 40.0), (1.7, 80.0)])
def test_a_meter_is_as_long_as_its_share_and_never_longer(share: float, width: float) -> None:
    bar = read_page(charts.meter(share, 0.75)).all("rect")[1]
    assert float(bar.attributes["width"]) == width
    assert ("over" in bar.attributes["class"]) == (share > 0.75)


@pytest.mark.parametrize("share", [None, math.nan])
def test_what_is_not_known_has_no_meter(share: float | None) -> None:
    assert charts.meter(share) == ""


def test_columns_are_as_high_as_their_values_and_a_missing_one_is_marked() -> None:
    values = [0.5, None, 1.0]
    columns = [Column(label=str(value), value=value, text=str(value)) for value in values]
    svg = read_page(charts.columns(columns, title="Rates", name="c", top=1.0, scale="100%")).one("svg")
    half, whole = (float(each.attributes["height"]) for each in svg.all("rect", class_="column"))
    assert whole == pytest.approx(2 * half)
    assert len(svg.all("rect", class_="none")) == 1
    assert svg.one("desc").text == "0.5: 0.5; None: None; 1.0: 1.0"


def test_a_sparkline_needs_two_values() -> None:
    assert charts.sparkline([1.0, None], "one", name="s") == ""
    assert len(read_page(charts.sparkline([1.0, 2.0, None, 3.0, 4.0], "few", name="s")).all("path")) == 2


# ---- colours


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


STYLE = static("style.css").decode()
SCHEMES = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(scheme: dict[str, str]) -> None:
    pairs = [(ink, ground) for ink in ("ink", "quiet", "link") for ground in ("card", "back", "soft")]
    pairs += [(each, f"{each}-back") for each in ("good", "warn", "alarm")]
    pairs += [("ink", "warn-back"), ("ink", "alarm-back"), ("ahead", "card"), ("alarm", "card"), ("good", "card")]
    pairs += [("on-heat", f"h{step}") for step in range(10)]
    assert [pair for pair in pairs if contrast(scheme[pair[0]], scheme[pair[1]]) < 4.5] == []
    drawn = [("line", "card"), ("less", "card"), ("more", "card"), ("whole", "card"), ("focus", "card")]
    assert [pair for pair in drawn if contrast(scheme[pair[0]], scheme[pair[1]]) < 3.0] == []


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_each_step_of_heat_is_further_from_the_ground_than_the_one_before(scheme: dict[str, str]) -> None:
    steps = [contrast(scheme[f"h{step}"], scheme["h0"]) for step in range(10)]
    assert all(one < other for one, other in pairwise(steps))


def test_both_schemes_have_the_same_colours() -> None:
    light, dark = SCHEMES
    assert light.keys() == dark.keys()
