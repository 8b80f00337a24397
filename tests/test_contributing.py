"""The changes on the pages of docs/contributing apply as they stand, and touch as few files as the pages say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "contributing").glob("add-a-*.md"))
MOST_FILES = {"add-a-guard": 3, "add-a-limit-scope": 4, "add-a-field": 4, "add-a-column": 4, "add-a-strategy": 2}
"""Page -> the most files of the product that the change may touch; tests and pages apart."""

FILE = re.compile(r"^\+\+\+ b/(\S+)$", re.M)


def patch_of(page: Path) -> str:
    found = re.search(r"```diff\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert found is not None, page
    return found[1]


def test_every_page_has_its_count() -> None:
    assert {page.stem for page in PAGES} == set(MOST_FILES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_change_touches_few_files_and_the_page_names_each(page: Path) -> None:
    files = FILE.findall(patch_of(page))
    product = [file for file in files if not file.startswith(("tests/", "docs/"))]
    assert 0 < len(product) <= MOST_FILES[page.stem]
    assert len(product) < len(files)  # it has tests
    assert [file for file in product if f"`{file}`" not in page.read_text().split("```diff")[0]] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_patch_applies_to_a_copy_and_its_tests_pass(page: Path, tmp_path: Path) -> None:
    for folder in ("rebalancer", "tests", "migrations", "policies", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    patch = patch_of(page)
    # outside of any repository: a copy inside a work tree would be taken for a part of it
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONPATH": str(tmp_path)}
    applied = subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=patch, env=outside, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, applied.stderr
    tests = [file for file in FILE.findall(patch) if re.fullmatch(r"tests/.*\.py", file)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=tmp_path,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
