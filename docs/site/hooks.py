"""Makes a site of the repository's pages: adds those outside of docs/, lists the decisions, and rewrites links.

The pages are written for readers of the repository, so their links name files of it. On the site a link to another page
leads there, and a link to any other file leads to the repository; without `repo_url` only its text is left.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "deploy/helm/rebalancer/README.md": "reference/chart.md",
}
"""Page of the repository outside of docs/ -> its path on the site."""

DECISIONS = "adr/index.md"
_SOURCES = {uri: path for path, uri in OUTSIDE.items()}
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision into the navigation."""
    (decisions,) = [section for section in config.nav or () if "Decisions" in section]
    pages = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    decisions["Decisions"] = [DECISIONS, *(f"adr/{name}" for name in pages)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/ and the list of decisions."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    titles = {path.name: _title(path) for path in sorted((ROOT / "docs" / "adr").glob("*.md"))}
    lines = "\n".join(f"- [{title}]({name})" for name, title in titles.items())
    files.append(File.generated(config, DECISIONS, content=f"# Decisions\n\n{lines}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, outside of its code blocks."""
    uri = page.file.src_uri
    source = _SOURCES.get(uri, f"docs/{uri}")
    out, end = [], 0
    for fence in _FENCE.finditer(markdown):
        out += [_rewritten(markdown[end : fence.start()], source, uri, config.repo_url or ""), fence[0]]
        end = fence.end()
    return "".join([*out, _rewritten(markdown[end:], source, uri, config.repo_url or "")])


def _rewritten(prose: str, source: str, uri: str, repository: str) -> str:
    def link(match: re.Match[str]) -> str:
        text, (target, _, anchor) = match["text"], match["target"].partition("#")
        if "://" in target or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        to = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
        if (ROOT / path).is_dir():
            to = to and f"{to}/index.md"
        if to:
            return f"[{text}]({posixpath.relpath(to, posixpath.dirname(uri) or '.')}{anchor and '#'}{anchor})"
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path})" if repository else text

    return _LINK.sub(link, prose)


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")
