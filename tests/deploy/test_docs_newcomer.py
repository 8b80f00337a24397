"""The newcomer's path of the README, followed to the letter in a copy of the checkout."""

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
from tests.deploy.readers.pages import sections

SECTION = sections(ROOT / "README.md")["Use it on a cluster"]
PARTS = dict(re.findall(r"^<!-- newcomer: (\w+) -->\n```sh\n(.*?)^```$", SECTION, flags=re.DOTALL | re.MULTILINE))
PORT = "18080"
SAID = (
    "policy.yaml: ok",
    "everything that a run needs is allowed",
    "Planned evictions (dry run)",
    "Node gen-2 (pool general)",
    "Evictions",
    "In flight",
)
"""In this order, each after the one before."""


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
            env={"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
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


def check(code: int, said: str) -> None:
    assert code == 0, said
    at = 0
    for words in SAID:
        found = said.find(words, at)
        assert found >= 0, f"{words!r} is missing\n{said}"
        at = found


def moves(said: str, title: str) -> list[tuple[str, str]]:
    """(pod, node -> target node) of each row of a table of evictions."""
    table = said.partition(f"\n{title}\n")[2]
    rows = table.partition("\nNot evicted")[0].splitlines()[1:]
    return [(cells[0], f"{cells[1]} -> {cells[2]}") for row in rows if len(cells := re.split(r"\s{2,}", row)) > 3]


def test_every_line_of_shell_of_the_section_is_part_of_the_path() -> None:
    assert list(PARTS) == ["install", "path"]
    assert SECTION.count("```") == 2 * len(PARTS)


@pytest.mark.timeout(600)
def test_the_newcomers_path_works_as_it_is_written(tmp_path: Path) -> None:
    """All but the installation, with the program that is installed already."""
    copy = checkout(tmp_path)
    code, said = follow(
        PARTS["path"], copy, path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", seconds=540
    )
    check(code, said)
    assert (copy / "rebalancer.db").exists()
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
        PARTS["install"] + PARTS["path"], checkout(tmp_path), path=f"{python}:/usr/bin:/bin", seconds=840
    )
    check(code, said)
