"""The lines of README and tutorial, followed to the letter in a copy of the checkout, with an empty home folder."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.readers.manifests import ROOT

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
PORT = "18080"
README_SAID = ("Cycle 1", "no node is hot any more")
TUTORIAL_SAID = (
    "policy.yaml: ok",
    "everything that a run needs is allowed",
    "Planned evictions (dry run)",
    "Node gen-2 (pool general)",
    "\nEvictions\n",
    "In flight",
    "Limits",
    "Settling",
    "paused: cluster demo",
    "looking into it",
    "1 pause ended",
)
"""In this order, each after the one before."""


def parts(page: Path) -> dict[str, str]:
    """Name -> lines, of the blocks that are part of the path."""
    return dict(re.findall(r"^<!-- newcomer: (\w+) -->\n```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))


def path_of(page: Path) -> str:
    """All lines but those of the installation."""
    return "".join(lines for name, lines in parts(page).items() if name != "install")


def files(folder: Path) -> set[Path]:
    """What git would show, and what it ignores but for compiled modules."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def checkout(folder: Path) -> Path:
    """A copy of what a clone would hold, without what only its developers need."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.db", "*.db-*", "tests", "bench", "*.kubeconfig")
    return Path(shutil.copytree(ROOT, folder / "rebalancer", ignore=left_out))


def follow(script: str, cwd: Path, *, path: str, seconds: float) -> tuple[int, str]:
    """Run the lines in one shell that stops at the first that fails: (exit code, all that was said).

    They are what the README says but for the port, which may be taken here.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        script = script.replace(PORT, str(free.getsockname()[1]))
    home = cwd.parent / "home"
    home.mkdir()
    said = cwd.parent / "said"
    with said.open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "-e", "-x", "-o", "pipefail", "-c", script],
            cwd=cwd,
            env={
                "PATH": path,
                "HOME": str(home),
                "LANG": "C.UTF-8",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_COMPILE": "0",  # most of the time of an installation; modules in use are compiled when imported
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(seconds)
        finally:
            # also what the shell left in the background
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    return code, said.read_text(errors="replace")


def check(code: int, said: str, words_in_order: tuple[str, ...]) -> None:
    assert code == 0, said
    at = 0
    for words in words_in_order:
        found = said.find(words, at)
        assert found >= 0, f"{words!r} is missing\n{said}"
        at = found


def moves(said: str, title: str) -> list[tuple[str, str]]:
    """(pod, node -> target node) of each row of a table of evictions."""
    table = said.partition(f"\n{title}\n")[2]
    rows = table.partition("\nNot evicted")[0].splitlines()[1:]
    return [(cells[0], f"{cells[1]} -> {cells[2]}") for row in rows if len(cells := re.split(r"\s{2,}", row)) > 3]


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=lambda page: page.stem)
def test_every_line_of_shell_is_part_of_the_path(page: Path) -> None:
    assert page.read_text().count("```sh\n") == len(parts(page)) > 1
    assert parts(page)["install"] == parts(README)["install"]


def test_the_readme_is_one_screen() -> None:
    assert len(README.read_text().splitlines()) < 80


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "words_in_order"), [(README, README_SAID), (TUTORIAL, TUTORIAL_SAID)], ids=["README", "tutorial"]
)
def test_the_newcomers_path_works_as_it_is_written(page: Path, words_in_order: tuple[str, ...], tmp_path: Path) -> None:
    """All but the installation, with the program that is installed already. The checkout stays as it was."""
    copy = checkout(tmp_path)
    before = files(copy)
    code, said = follow(
        path_of(page), copy, path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", seconds=540
    )
    check(code, said, words_in_order)
    assert files(copy) == before
    if page == TUTORIAL:
        planned, evicted = moves(said, "Planned evictions (dry run)"), moves(said, "Evictions")
        # loads go on between the two commands, and of two nodes that are as hot either may be first
        assert sorted(planned) == sorted(evicted)
        assert len(planned) > 3


def test_a_line_that_fails_would_have_been_told(tmp_path: Path) -> None:
    tmp_path.joinpath("copy").mkdir()
    code, said = follow("true\nls not-there | cat\ntrue\n", tmp_path / "copy", path="/usr/bin:/bin", seconds=60)
    assert code != 0
    assert "not-there" in said


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_newcomers_path_works_from_the_first_line_in_a_clean_environment(tmp_path: Path) -> None:
    python = Path(sys.executable).resolve().parent
    code, said = follow(
        parts(TUTORIAL)["install"] + path_of(TUTORIAL), checkout(tmp_path), path=f"{python}:/usr/bin:/bin", seconds=840
    )
    check(code, said, TUTORIAL_SAID)
