"""The pages that people read, taken apart: code blocks, lines of shell, commands in running text."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.deploy.readers.manifests import ROOT

DOCS = ROOT / "docs"
OPERATIONS = sorted((DOCS / "operations").glob("*.md"))
WRITTEN = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *OPERATIONS, *sorted((DOCS / "adr").glob("*.md"))]
"""Pages that people wrote; docs/reference is made from the code."""


class Line(NamedTuple):
    """One command of a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def name(page: Path) -> str:
    """The page as tests call it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of these languages, without the indentation that they have in a list."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [
        re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, language, text in found if language in languages
    ]


def commands(pages: Sequence[Path]) -> list[Line]:
    """Every command in the blocks of shell and consoles, one program with its arguments each."""
    return [Line(name(page), words) for page in pages for text in _shell(page) for words in _commands(text)]


def _shell(page: Path) -> Iterator[str]:
    yield from blocks(page, "sh", "")
    for text in blocks(page, "console"):
        yield "\n".join(re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE))


def _commands(text: str) -> Iterator[tuple[str, ...]]:
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # no shell
            continue
        part: list[str] = []
        for word in [*words, ";"]:
            if word in ("|", "&", "&&", ";") or word.endswith(";"):
                if part:
                    # without the file that its output goes to
                    yield tuple(part[: part.index(">")] if ">" in part else part)
                part = []
            elif not (re.fullmatch(r"[A-Z_]+=.*", word) and not part):
                part.append(word)


def in_text(pages: Sequence[Path], program: str) -> list[Line]:
    """Every `program ...` in running text, as far as it is a command: `[--optional]` without its brackets."""
    found = []
    for page in pages:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
            try:
                words = shlex.split(re.sub(r"[\[\]]", " ", span))
            except ValueError:  # an apostrophe: no command
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words[:1] == [program] and len(words) > 1:
                found.append(Line(name(page), tuple(words)))
    return found


def sections(page: Path) -> dict[str, str]:
    """Heading of the second level -> the text below it."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`, as GitHub makes it of headings."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
