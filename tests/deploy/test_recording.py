"""The picture of the demo in the README is what the demo prints."""

import html
import re
import subprocess
import sys
from pathlib import Path

from tests.deploy.readers.manifests import ROOT

PICTURE = ROOT / "docs" / "images" / "demo.svg"


def lines(svg: str) -> list[str]:
    """What the picture shows, line by line."""
    rows: dict[float, str] = {}
    for y, text in re.findall(r'<text class="demo-r\d+"[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        rows[float(y)] = rows.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
    return [rows[y].rstrip() for y in sorted(rows)]


def skeleton(svg: str) -> list[str]:
    """Titles and headings of tables, which no measurement changes."""
    return [" ".join(line.split()) for line in lines(svg) if re.fullmatch(r"[A-Z ]+|(Hot n|E|Node C)[a-zA-Z ]+", line)]


def test_the_recording_is_made_by_a_command_and_shows_what_the_demo_prints_today(tmp_path: Path) -> None:
    made = tmp_path / "demo.svg"
    command = [sys.executable, ROOT / "docs" / "recording.py", made]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=150)
    kept, new = PICTURE.read_text(), made.read_text()
    assert lines(kept)[0] == "$ rebalancer demo"
    assert len(skeleton(kept)) > 5
    assert skeleton(kept) == skeleton(new), "the output has changed: run `make recording`"
    assert list(tmp_path.iterdir()) == [made]


def test_the_recording_is_small_and_loads_nothing() -> None:
    svg = PICTURE.read_text()
    assert len(svg) < 150_000
    assert "url(http" not in svg
    assert str(ROOT) not in svg
