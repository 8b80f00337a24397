"""The HTML report opened from the file alone: a real browser, and no network."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from rebalancer.store import upgrade
from tests.evaluation.builders import fill
from tests.programs.cli import policy_for, rebalancer, write_policy

WAIT_MILLISECONDS = 60_000.0


@dataclass
class Seen:
    """What a page asked for, and what it complained about."""

    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The week of `recorded`, as the program writes it."""
    folder = tmp_path_factory.mktemp("report")
    url = f"sqlite:///{folder / 'rebalancer.db'}"
    upgrade(url)
    fill(url)
    policy = write_policy(folder, policy_for("http://127.0.0.1:9"))
    done = rebalancer(
        *("report", "-f", policy, "--database", url, "--since", "2024-10-04", "--until", "2024-10-11"),
        *("--by", "pool,trigger", "-o", "html", "--file", "report.html"),
        cwd=folder,
    )
    assert done.code == 0, done.err
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=WAIT_MILLISECONDS)
        yield opened
        opened.close()


def open_page(browser: Browser, report: Path, *, scripts: bool = True) -> tuple[Page, Seen]:
    """The file, with every request but that for itself refused."""
    context = browser.new_context(offline=True, java_script_enabled=scripts)
    page, seen = context.new_page(), Seen()

    def answer(route: Route) -> None:
        seen.asked.append(route.request.url)
        if route.request.url == report.as_uri():
            route.continue_()
        else:
            route.abort()

    page.route("**/*", answer)
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("requestfailed", lambda request: seen.complaints.append(request.url))
    page.goto(report.as_uri(), wait_until="networkidle", timeout=WAIT_MILLISECONDS)
    return page, seen


@pytest.mark.real
def test_the_report_opens_from_a_file_and_asks_for_nothing_else(browser: Browser, report: Path) -> None:
    page, seen = open_page(browser, report)
    assert seen.asked == [report.as_uri()]
    assert seen.complaints == []
    assert page.locator("h1").all_inner_texts() == ["Did it help"]
    headings = page.locator("h2").all_inner_texts()
    for heading in (
        *("Discovery", "Eviction", "Effectiveness", "By pool, trigger", "Why hot nodes were not discovered"),
        *(
            "Before and after",
            "The whole cluster",
            "Hottest nodes",
            "Services with the most evictions",
            "Forecasts",
            "Over time",
        ),
    ):
        assert heading in headings
    tables = page.locator("table")
    assert tables.count() >= 8
    for index in range(tables.count()):
        assert tables.nth(index).locator("caption").inner_text().strip()
    assert "3 of 4" in page.locator("section", has=page.locator("h2", has_text="Discovery")).first.inner_text()
    page.context.close()


@pytest.mark.real
def test_its_pictures_have_names_and_are_drawn(browser: Browser, report: Path) -> None:
    page, _ = open_page(browser, report)
    pictures = page.locator("figure svg")
    assert pictures.count() >= 4
    for index in range(pictures.count()):
        picture = pictures.nth(index)
        assert picture.locator("title").first.text_content()
        box = picture.bounding_box()
        assert box is not None
        assert box["width"] > 100
        assert box["height"] > 20
    page.context.close()


@pytest.mark.real
def test_it_reads_the_same_without_scripts_and_on_a_small_screen(browser: Browser, report: Path) -> None:
    with_scripts, _ = open_page(browser, report)
    text = with_scripts.locator("main").inner_text()
    with_scripts.context.close()
    page, seen = open_page(browser, report, scripts=False)
    assert seen.complaints == []
    assert page.locator("main").inner_text() == text
    page.set_viewport_size({"width": 400, "height": 800})
    body = page.locator("body").bounding_box()
    assert body is not None
    assert body["width"] <= 400
    page.context.close()


def test_nothing_in_the_file_names_anything_elsewhere(report: Path) -> None:
    text = report.read_text()
    assert not re.search(r"<(script|link|iframe|object|embed|img)\b", text)
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:|#)", text)
    assert not re.findall(r"(?:src|href|action|data)\s*=\s*[\"'](?!#)", text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {"http://www.w3.org/2000/svg"}
