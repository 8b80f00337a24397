"""The dashboard in a real browser: a daemon of the real command on the lab, Chromium in front of it.

Screenshots for a person to look at are written to the folder that REBALANCER_SCREENSHOTS names.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from playwright.sync_api import Browser, Page, Request, Route, sync_playwright

from rebalancer.lab import Lab, node, scenario, workload
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, evicted, until
from tests.programs.cli import rebalancer, write_policy

USER, PASSWORD = "ada", "a password"
THRESHOLDS = {"high": 90, "target": 80, "low": 50}
POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": THRESHOLDS}
    for name in ("general", "batch")
]
MAIN = {"/", "/nodes", "/evictions", "/cycles", "/limits", "/services", "/reports", "/policy"}
WIDTHS = {"desktop": (1360, 900), "phone": (390, 844)}
MOST_PAGES = 120
NODES = 13


@dataclass
class Stage:
    daemon: DaemonProcess
    lab: Lab
    folder: Path
    screenshots: Path
    browser: Browser

    @contextmanager
    def page(self, *, scheme: str = "light", width: str = "desktop", javascript: bool = True) -> Iterator["Visit"]:
        """A new browser window; what it complains of, or asks of others, fails at the end."""
        across, down = WIDTHS[width]
        context = self.browser.new_context(
            base_url=self.daemon.url,
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": across, "height": down},
            java_script_enabled=javascript,
            http_credentials={"username": USER, "password": PASSWORD},
        )
        visit = Visit(page=context.new_page(), host=urlparse(self.daemon.url).netloc)
        visit.listen()
        try:
            yield visit
            assert visit.complaints == []
            assert visit.elsewhere == []
        finally:
            context.close()


@dataclass
class Visit:
    """One window, and what went on in it."""

    page: Page
    host: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("requestfailed", self._failed)

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # an icon on its way when the next page is opened
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def _asked(self, url: str) -> None:
        self.asked.append(url)
        if urlparse(url).netloc != self.host:
            self.elsewhere.append(url)

    def goto(self, path: str) -> int:
        """The status of the page."""
        answer = self.page.goto(path)
        assert answer is not None
        return answer.status

    def links(self) -> set[str]:
        """Where its links lead, without fragments."""
        hrefs: list[str] = self.page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href'))")
        return {urldefrag(each).url for each in hrefs} - {""}

    def pages(self) -> int:
        """How many were asked for, without what they load."""
        return sum("/static/" not in each for each in self.asked)

    def focused(self) -> str:
        """Text of what has the focus."""
        return str(self.page.evaluate("document.activeElement.innerText || document.activeElement.id || ''")).strip()


def the_lab() -> Lab:
    """Three warm nodes that alerts will name, one that is cool now and hot in half a day, and cold ones."""
    hour = time.gmtime().tm_hour
    nodes = [
        node(name, cpu=8, overhead_cores=0.3, pool=pool)
        for pool, names in {
            "general": ("warm-1", "warm-2", "warm-3", *(f"cold-{number}" for number in range(1, 7))),
            "batch": ("tomorrow", *(f"idle-{number}" for number in range(1, 4))),
        }.items()
        for name in names
    ]
    placed = {"namespace": "shop", "cpu_request": "500m", "memory_request": "256Mi"}
    later = {"base": 1.3, "amplitude": 0.95, "peak_hour": float((hour + 12) % 24)}
    services = [
        *(workload(f"svc-{number}", place={f"warm-{number}": 3}, cpu=1.65, **placed) for number in (1, 2, 3)),
        workload("nightly", place={"tomorrow": 3}, cpu=later, node_selector={"pool": "batch"}, **placed),
    ]
    return Lab.start(scenario(nodes=nodes, workloads=services, start_seconds=1.0, stop_seconds=1.0), speed=1.0)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium: apt-get install chromium")
    folder = tmp_path_factory.mktemp("dashboard")
    screenshots = Path(os.environ.get("REBALANCER_SCREENSHOTS") or folder / "screenshots")
    screenshots.mkdir(parents=True, exist_ok=True)
    (folder / "basic").write_text(f"{USER}:{PASSWORD}")
    env = {"REBALANCER_BASIC_AUTH_FILE": str(folder / "basic"), "REBALANCER_HISTORY_DIR": str(folder / "history")}
    with the_lab() as lab:
        policy = alert_policy(
            lab.prometheus_url,
            pools=POOLS,
            forecast={"mode": "Act"},
            windows={"cluster": [{"name": "always", "kind": "Allow", "schedule": "0 0 * * *", "duration": "24h"}]},
        )
        config = lab.write_kubeconfig(folder / "kubeconfig")
        with (
            daemon(folder, write_policy(folder, policy), config, env=env) as running,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            until(running.leads, running.tail)
            running.alert("warm-1", "warm-2")
            until(lambda: len(evicted(lab)) == 2, running.tail)
            until(lambda: running.events("forecast run"), running.tail)
            made = Stage(daemon=running, lab=lab, folder=folder, screenshots=screenshots, browser=browser)
            _wait_until_all_is_shown(made)
            yield made
            browser.close()


def _wait_until_all_is_shown(stage: Stage) -> None:
    """The eviction's page, and the peaks on the map, come a little after the eviction."""
    with stage.page() as visit:

        def there() -> bool:
            visit.goto("/")
            tiles = visit.page.locator("a.tile").count()
            peaks = visit.page.locator("a.tile.is-expected").count()
            visit.goto("/cycles?acted=1")
            return tiles == NODES and peaks == 1 and "evicted" in visit.page.inner_text("main")

        until(there, stage.daemon.tail)


def test_every_page_is_opened_and_every_link_leads_to_a_page(stage: Stage) -> None:
    seen: dict[str, int] = {}
    with stage.page() as visit:
        waiting = ["/"]
        while waiting:
            path = waiting.pop(0)
            if path in seen:
                continue
            seen[path] = visit.goto(path)
            assert visit.page.locator("main").count() == 1
            assert visit.page.locator("h1").count() == 1
            # the same page with another interval or time range is another test
            waiting += sorted(
                each for each in visit.links() if "refresh=" not in each and "last=" not in each and each not in seen
            )
            assert len(seen) <= MOST_PAGES
        assert visit.asked
    assert {path for path, status in seen.items() if status != 200} == set()
    assert set(seen) >= MAIN
    kinds = {unquote(path.partition("?")[0]).split("/")[1] for path in seen if path.count("/") > 1}
    assert kinds == {"nodes", "cycles", "services"}
    assert sum(path.startswith("/nodes/") for path in seen) == NODES


def test_a_decision_is_found_from_the_map_in_two_clicks(stage: Stage) -> None:
    [gone] = evicted(stage.lab, "warm-1")
    with stage.page() as visit:
        visit.goto("/")
        visit.page.click("a.tile[title='warm-1']")
        visit.page.locator("section[aria-labelledby=moves] a[href^='/cycles/']").first.click()
        visit.page.wait_for_url("**/cycles/*")
        decided = visit.page.inner_text("section[aria-labelledby=decided]")
        assert gone.name in decided
        assert "real CPU 65.6% is over high 60% (alert NodeHot)" in decided
        assert visit.page.inner_text("section[aria-labelledby=refused] code").strip()


def test_a_node_that_will_be_hot_is_marked_and_its_curve_goes_on(stage: Stage) -> None:
    with stage.page() as visit:
        visit.goto("/")
        tile = visit.page.locator("a.tile.is-expected")
        assert tile.get_attribute("title") == "tomorrow"
        assert "expected hot" in tile.inner_text()
        tile.click()
        assert visit.page.locator("svg.curve path.ahead").count() == 1
        assert visit.page.locator("svg.curve path.past").count() >= 1
        assert "peak" in visit.page.inner_text(".notice.watch")
        visit.page.click("summary")
        assert visit.page.locator("details table tbody tr").count() >= 48


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS))
def test_pages_fit_their_window_and_are_drawn_for_a_person(scheme: str, width: str, stage: Stage) -> None:
    pages = {"overview": "/", "node": "/nodes/warm-1", "peak": "/nodes/tomorrow"}
    pages |= {each.strip("/"): each for each in MAIN - {"/"}} | {"service": "/services/shop%2Fsvc-1"}
    with stage.page(scheme=scheme, width=width) as visit:
        visit.goto("/cycles?acted=1")
        pages["cycle"] = next(each for each in sorted(visit.links()) if each.startswith("/cycles/"))
        for name, path in pages.items():
            assert visit.goto(path) == 200
            across = visit.page.evaluate("document.documentElement.scrollWidth")
            assert across <= WIDTHS[width][0], f"{name} is {across} wide"
            visit.page.screenshot(path=stage.screenshots / f"{name}-{width}-{scheme}.png", full_page=True)
        ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(246, 247, 249)" if scheme == "light" else "rgb(17, 21, 27)")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(stage: Stage) -> None:
    with stage.page() as visit:
        visit.goto("/")
        reached = []
        while True:
            visit.page.keyboard.press("Tab")
            if visit.page.evaluate("document.activeElement === document.body"):
                break
            reached.append(visit.focused())
            outline = visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", reached
        assert reached[0] == "Skip to the content"
        for name in ("Overview", "Nodes", "Evictions", "Cycles", "Limits", "Services", "Reports", "Policy", "Find"):
            assert name in reached
        assert sum(each.startswith(("warm-", "cold-", "idle-", "tomorrow")) for each in reached) >= 12
        visit.goto("/")
        visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("Enter")
        assert visit.page.evaluate("document.activeElement.id") == "main"
        visit.page.focus("nav a[href='/cycles']")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/cycles")


def test_everything_can_be_read_without_scripts(stage: Stage) -> None:
    with stage.page(javascript=False) as visit:
        for path in sorted(MAIN):
            assert visit.goto(path) == 200
        visit.goto("/")
        visit.page.locator("a.tile[title='warm-1']").click()
        assert visit.page.inner_text("h1") == "warm-1"
        visit.page.fill("#find", "cold")
        visit.page.click("button:has-text('Find')")
        assert visit.page.locator("section[aria-labelledby=nodes] tbody tr").count() == 6
        assert visit.page.locator("th button").count() == 0


def test_with_scripts_tables_are_sorted_and_narrowed(stage: Stage) -> None:
    with stage.page() as visit:
        visit.goto("/nodes")

        def names() -> list[str]:
            return [each.strip() for each in visit.page.locator("tbody tr:visible th").all_inner_texts()]

        assert len(names()) == NODES
        visit.page.click("th button:has-text('Node')")
        assert names() == sorted(names())
        visit.page.click("th button:has-text('Node')")
        assert names() == sorted(names(), reverse=True)
        assert visit.page.get_attribute("th:has-text('Node')", "aria-sort") == "descending"
        visit.page.click("th button:has-text('Peak at')")
        visit.page.click("th button:has-text('CPU now')")
        shares = [float(each.replace("%", "")) for each in visit.page.locator("td:nth-child(4)").all_inner_texts()]
        assert shares == sorted(shares, reverse=True)
        visit.page.fill(".narrowing input", "idle")
        assert sorted(names()) == ["idle-1", "idle-2", "idle-3"]


def test_an_eviction_of_the_daemon_appears_without_a_reload(stage: Stage) -> None:
    with stage.page() as visit, stage.page() as still:
        visit.goto("/nodes/warm-3")
        still.goto("/nodes/warm-3?refresh=off")
        evictions = "section[aria-labelledby=moves]"
        assert "None recorded." in visit.page.inner_text(evictions)
        loaded = visit.page.evaluate("window.loaded = performance.timeOrigin")
        stage.daemon.alert("warm-3")
        [gone] = until(lambda: evicted(stage.lab, "warm-3"), stage.daemon.tail)
        visit.page.wait_for_selector(f"{evictions} td.pod:has-text('{gone.name}')", timeout=30_000)
        assert visit.page.evaluate("window.loaded") == loaded
        assert "None recorded." in still.page.inner_text(evictions)


def test_the_search_finds_a_pod_with_the_keyboard_only(stage: Stage) -> None:
    with stage.lab.cluster.lock:
        pod = next(
            each["metadata"]["name"]
            for each in stage.lab.cluster.store.sorted("pods")
            if each["spec"].get("nodeName") == "tomorrow"
        )
    with stage.page() as visit:
        visit.goto("/")
        while visit.focused() != "find":
            visit.page.keyboard.press("Tab")
        visit.page.keyboard.type(pod)
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/search?q=*")
        while visit.focused() != "tomorrow":
            visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/nodes/tomorrow#pods")
        assert pod in visit.page.inner_text("section[aria-labelledby=pods]")


def test_without_a_password_the_browser_is_shown_a_closed_door(stage: Stage) -> None:
    context = stage.browser.new_context(base_url=stage.daemon.url)
    try:
        answer = context.request.get("/", max_redirects=0)
        assert (answer.status, answer.headers["www-authenticate"]) == (
            401,
            'Basic realm="rebalancer", charset="UTF-8"',
        )
        assert "warm-1" not in answer.text()
    finally:
        context.close()


def test_a_report_as_a_file_opens_without_any_network(stage: Stage) -> None:
    file = stage.folder / "report.html"
    policy = stage.folder / "policy.yaml"
    database = f"sqlite:///{stage.folder / 'rebalancer.db'}"
    done = rebalancer("report", "-f", policy, "--database", database, "-o", "html", "--file", file)
    assert done.code == 0, done.err
    context = stage.browser.new_context(offline=True)
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    try:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.route("http*://**/*", refuse)
        page.goto(file.as_uri())
        assert page.inner_text("h1") == "Did it help"
        assert "shop/svc-1" in page.inner_text("main")
        assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderTopStyle") == "solid"
        page.screenshot(path=stage.screenshots / "report-file.png", full_page=True)
        assert (asked, complaints) == ([], [])
    finally:
        context.close()
