"""What the documentation says is true: references are made from the code, examples load."""

import ast
import os
import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.policy import load_policy
from rebalancer.web import Auth, Metrics
from rebalancer.web.pages.dashboard import dashboard_routes
from tests.builders import a_policy
from tests.web.scenarios import HandMade

ROOT = Path(__file__).parent.parent
RECIPES = re.findall(r"^## (.*?)\n\n```yaml\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text(), flags=re.M | re.S)
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "limits.md").read_text(), flags=re.S)


def test_the_generated_references_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_policy_loads(path: Path) -> None:
    load_policy(path.read_bytes(), source=path.name)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split(":")[0])
def test_every_example_of_the_limits_page_is_a_valid_section(text: str) -> None:
    section: dict[str, Any] = yaml.safe_load(text)
    if "metadata" not in section:
        a_policy(**section)
        return
    from rebalancer.policy.schema.windows import parse_change_window

    (annotation,) = section["metadata"]["annotations"].values()
    assert len(parse_change_window(annotation)) == 2


@pytest.mark.parametrize(("title", "text"), RECIPES, ids=[title for title, _ in RECIPES])
def test_every_recipe_is_a_part_of_a_policy(title: str, text: str) -> None:
    whole = yaml.safe_load((ROOT / "policies" / "balanced.yaml").read_text())
    part = yaml.safe_load(text)
    changed = load_policy(yaml.safe_dump(whole | part).encode(), source=title)
    unchanged = load_policy(yaml.safe_dump(whole).encode(), source="balanced.yaml")
    assert changed != unchanged


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    folders = {page.parent.name for page in pages}
    assert folders >= {"docs", "adr", "operations", "reference"}
    for page in pages:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_the_path_of_a_cpu_sample_names_functions_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    stops = re.findall(r"^\| \d+ \| \[`(.+?)`\]\(\.\./(\S+?)#(\S+?)\) \|", page, flags=re.M)
    assert 10 <= len(stops) <= 20
    for name, file, anchor in stops:
        assert name == anchor
        body: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
        for part in name.split("."):
            found = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == part]
            assert found, f"{file}: no {name}"
            body = found[0].body


def test_the_example_of_a_replay_is_what_its_command_wrote() -> None:
    examples = ROOT / "docs" / "examples"
    text, page = (examples / "replay.txt").read_text(), (examples / "replay.html").read_text()
    assert f"```\n{text.strip()}\n```" in (ROOT / "docs" / "replay.md").read_text()
    (before, after) = re.findall(r"hot node-hours ([\d.]+) -> ([\d.]+)", text)[0]
    assert f"hot node-hours <b>{before} → {after}</b>" in page
    assert "50 nodes" in text
    assert len(page) < 2_000_000


def test_the_examples_of_advice_are_what_their_command_wrote() -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    for name in ("jobs", "requests"):
        text = (ROOT / "docs" / "examples" / f"advise-{name}.txt").read_text()
        assert "```\n" + text[: text.index("kubectl")] in page


def test_the_example_of_a_replay_is_made_of_folders_of_traces(tmp_path: Path) -> None:
    if not os.environ.get("REBALANCER_TRACES"):
        pytest.skip("REBALANCER_TRACES is unset: it names folders of recorded CPU traces (timestamp,value)")
    words = ["docs/replay_example.py", "--nodes", "6", "--days", "1", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "replay.txt").read_text() == done.stdout
    assert "6 nodes" in done.stdout
    assert "public traces" in (tmp_path / "replay.html").read_text()
    for name in ("jobs", "requests"):
        assert "6 nodes" in (tmp_path / f"advise-{name}.txt").read_text()


def test_every_page_that_a_manifest_or_its_comments_name_exists() -> None:
    named = {
        (str(path.relative_to(ROOT)), page)
        for path in sorted((ROOT / "deploy").rglob("*"))
        if path.suffix in (".yaml", ".txt", ".tpl")
        for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())
    }
    operations = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs" / "operations").glob("*.md")}
    # whoever applies a manifest finds the way to these from there
    wanted = {"install", "first-week", "upgrade", "uninstall", "rbac", "sizing", "many-clusters", "runbook"}
    assert {page for _, page in named} >= {f"docs/operations/{name}.md" for name in wanted} <= operations
    for path, page in named:
        assert (ROOT / page).is_file(), (path, page)


def test_each_page_of_the_dashboard_has_three_small_pictures_that_the_docs_show() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "screenshots.py"))
    shown = re.findall(r"!\[[^]]+\]\((images/[^)]+)\)", (ROOT / "docs" / "dashboard.md").read_text())
    expected = [f"images/dashboard-{page}-{form}.png" for page in made["PAGES"] for form in made["FORMS"]]
    assert sorted(shown) == sorted(expected)
    assert {path.name for path in (ROOT / "docs" / "images").glob("dashboard-*")} == {
        Path(each).name for each in expected
    }
    for each in expected:
        data = (ROOT / "docs" / each).read_bytes()
        assert len(data) < 60_000, each
        width, height, _, palette = struct.unpack(">IIBB", data[16:26])
        assert palette == 3, each
        assert (width, height) == made["FORMS"][each.rpartition("-")[2].removesuffix(".png")][1:]
    routes = dashboard_routes(HandMade(), Auth(), Metrics())
    # a replay and proposals are not in every install
    pages = {route.path.replace(":path", "") for route in routes} - {"/static/{name}", "/replay", "/proposals"}
    of_pages = {"node": "/nodes/{name}", "cycle": "/cycles/{id}", "service": "/services/{name}", "overview": "/"}
    assert {of_pages.get(name, f"/{name}") for name in made["PAGES"]} == pages
