"""`make mutants`: break the product in one place after the other, and run the tests of the row that promises it.

Each mutant of `tests/faults/data/mutants.toml` is applied to a copy of the tree. It is caught when a test of its row
fails, or doesn't end in time, and passes again without the mutant. Rows whose tests need a server that is missing are
skipped. Exit code 1 when less than 90 % of the others were caught.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.faults.readers import ROOT, Mutant, read_mutants, rows

LEAST_SHARE = 0.9
RUN_SECONDS = 1200.0
"""Of one run of a row's tests."""
TEST_SECONDS = 180
SLOW = ("tests/e2e/", "tests/faults/", "tests/real/")
"""These run last: most mutants are caught before."""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".cache", ".hypothesis", "dist", "*.db")
PASSED, FAILED, NOTHING_RAN = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant: `caught`, `survived`, `skipped` or `unclear`."""

    mutant: Mutant
    word: str
    seconds: float
    detail: str = ""


class Tree:
    """A copy of the repository that one mutant at a time is applied to."""

    def __init__(self, folder: Path) -> None:
        self.root = Path(shutil.copytree(ROOT, folder / "tree", ignore=NOT_COPIED, symlinks=True))
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        self._cache = folder / "cache"
        self._written = int(time.time())
        self._sound: set[str] = set()
        """Tests that were seen to fail with a mutant and to pass without it."""

    def try_out(self, mutant: Mutant, tests: tuple[str, ...]) -> Verdict:
        began = time.monotonic()
        with self._applied(mutant):
            code, output = self._run(tests)
        if code == PASSED:
            word = "survived" if re.search(r"\d+ passed", output) else "skipped"
            return Verdict(mutant, word, time.monotonic() - began)
        if code not in (FAILED, None):
            return Verdict(mutant, "unclear", time.monotonic() - began, _last_line(output))
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+::\w+)", output, re.MULTILINE)
        if code == FAILED and not self._sound.issuperset(failed):
            # the same test once more, without the mutant
            code, output = self._run(tuple(failed), "--last-failed", "--last-failed-no-failures=none")
            if code != PASSED:
                return Verdict(mutant, "unclear", time.monotonic() - began, f"fails without it too: {failed}")
            self._sound.update(failed)
        return Verdict(mutant, "caught", time.monotonic() - began, failed[0] if failed else "no end in time")

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        file = self.root / mutant.file
        before = file.read_text()
        self._write(file, mutant.applied(before))
        try:
            yield
        finally:
            self._write(file, before)

    def _write(self, file: Path, source: str) -> None:
        file.write_text(source)
        # bytecode is valid for a source of the same size and second
        self._written += 1
        os.utime(file, (self._written, self._written))

    def _run(self, tests: tuple[str, ...], *options: str) -> tuple[int | None, str]:
        """(exit code, None where the run didn't end in time; output) of pytest."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "--tb=no"]
        command += [f"--timeout={TEST_SECONDS}", "-o", f"cache_dir={self._cache}", *options]
        environment = os.environ | {"PYTHONPATH": str(self.root)}
        process = subprocess.Popen(
            [*command, *sorted(tests, key=lambda test: test.startswith(SLOW))],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        return process.returncode, output


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1]


def show(verdict: Verdict) -> None:
    detail = f"\n{'':17}{verdict.detail}" if verdict.detail else ""
    print(f"  {verdict.word:9}{verdict.seconds:4.0f} s {verdict.mutant.name}{detail}", flush=True)


def try_all(mutants: list[Mutant], *, at_once: int) -> list[Verdict]:
    """Each printed as soon as its row is through."""
    tests = rows()
    of_row: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        of_row[mutant.row].append(mutant)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="rebalancer-mutants-") as folder:
        free: SimpleQueue[Tree] = SimpleQueue()
        for number in range(at_once):
            (at := Path(folder) / str(number)).mkdir()
            free.put(Tree(at))

        def through(row: str) -> tuple[str, list[Verdict]]:
            tree = free.get()
            try:
                return row, [tree.try_out(mutant, tests[row]) for mutant in of_row[row]]
            finally:
                free.put(tree)

        with ThreadPoolExecutor(at_once) as pool:
            for row, found in pool.map(through, of_row):
                print(f"\n{row}")
                for verdict in found:
                    show(verdict)
                verdicts += found
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="over row, file and what breaks; default: all")
    parser.add_argument("--at-once", type=int, default=1, help="copies of the tree that are used at once")
    args = parser.parse_args()
    wanted = [each for each in read_mutants() if re.search(args.k, f"{each.row}\n{each.name}", re.IGNORECASE)]
    if not wanted:
        print("no mutant matches")
        return 2
    verdicts = try_all(wanted, at_once=args.at_once)
    counts = Counter(verdict.word for verdict in verdicts)
    tried = len(verdicts) - counts["skipped"]
    share = counts["caught"] / tried if tried else 0.0
    seconds = sum(verdict.seconds for verdict in verdicts)
    words = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    print(f"\n{len(verdicts)} mutants of {len({each.row for each in wanted})} rows: {words}")
    print(f"{share:.0%} caught ({LEAST_SHARE:.0%} are needed), {seconds:.0f} s of tests")
    return int(share < LEAST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
