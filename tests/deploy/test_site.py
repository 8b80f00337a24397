"""The site: every page of the repository, strict links, and nothing that is loaded from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.readers.manifests import ROOT
from tests.deploy.readers.pages import DOCS


def build(site: Path, docs: Path = DOCS, **environment: str) -> subprocess.CompletedProcess[str]:
    config = docs / "site" / "mkdocs.yml"
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", site],
        env={"PATH": os.environ["PATH"], "NO_MKDOCS_2_WARNING": "1", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_and_has_every_page(site: Path) -> None:
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 50
    for page in (*pages, Path("index.html"), Path("contributing.html"), Path("changelog.html")):
        assert (site / page).is_file(), page
    assert not list(site.rglob("*.py"))


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]* rel=\"?(?:stylesheet|icon|preconnect)[^>]* href=\"?([^\s\">]+)", text)
        assert [each for each in loaded if "//" in each] == [], page


def test_lists_and_tables_are_rendered(site: Path) -> None:
    """GitHub takes a list without an empty line above it; Python-Markdown makes it one paragraph."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>|<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
        article = text.partition("<article")[2].partition("</article>")[0]
        for paragraph in re.findall(r"<p>(.*?)</p>", article, flags=re.DOTALL):
            assert not re.search(r"^([-*|]|\d+\.) |```", paragraph, flags=re.MULTILINE), (page.name, paragraph)


def test_a_link_to_a_file_that_is_no_page_leads_to_the_repository_or_is_text(site: Path, tmp_path: Path) -> None:
    assert "(<code>EvictionCalls</code>)" in (site / "architecture.html").read_text()
    done = build(tmp_path, REPOSITORY_URL="https://forge.example/rebalancer")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "architecture.html").read_text()
    assert 'href="https://forge.example/rebalancer/blob/main/rebalancer/cycle/evict/calls.py"' in text


@pytest.mark.parametrize("line", ["[gone](gone.md)", "[gone](glossary.md#gone)"])
def test_a_link_that_leads_nowhere_fails_the_build(line: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for path in (DOCS, ROOT / "deploy"):
        shutil.copytree(path, copy / path.name)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, copy)
    page = copy / "docs" / "dashboard.md"
    page.write_text(f"{page.read_text()}\n{line}\n")
    done = build(tmp_path / "site", copy / "docs")
    assert done.returncode == 1
    assert "gone" in done.stderr
