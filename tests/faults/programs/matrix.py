"""`make faults`: run the tests of the fault matrix and of the matrix by actor, with a verdict for each case; then put a
running daemon through the faults of `recovery`. Exit code 1 when one fell. With arguments, which are pytest's, only the
tests."""

import os
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.actors import ACTORS
from tests.faults.matrix import MATRIX

VERDICTS = {"passed": "held", "failed": "FELL", "skipped": "skipped"}


ROWS = (
    *(row for faults in MATRIX.values() for row in faults),
    *(replace(row, name=f"{actor}: {row.name}") for actor, powers in ACTORS.items() for row in powers),
)
"""Of both matrices."""


class Verdicts:
    """Prints a line for each case, under the row that it belongs to."""

    def __init__(self) -> None:
        self._fault = {test: row.name for row in ROWS for test in row.tests}
        self.counts: Counter[str] = Counter()
        self._shown = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        test, _, case = report.nodeid.partition("[")
        name = self._fault.get(test, test)
        if name != self._shown:
            self._shown = name
            print(f"\n{name}")
        verdict = VERDICTS[report.outcome]
        self.counts[verdict] += 1
        print(f"  {verdict:8} {case.rstrip(']') or test.rpartition('::')[2].removeprefix('test_').replace('_', ' ')}")


def main() -> int:
    """Run all of them in this process, in the order of the matrices."""
    verdicts = Verdicts()
    tests = [test for row in ROWS for test in row.tests]
    options = ["-q", "--no-header", "--no-summary", "-p", "no:terminalreporter", "-n", "0", *sys.argv[1:]]
    code = pytest.main([*options, *tests], plugins=[verdicts])
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.counts.items())))
    if sys.argv[1:]:
        return int(code != 0)
    from tests.faults.programs import recovery  # after pytest, which rewrites modules that this imports

    outcomes = recovery.run(real=False)
    if "KUBEBUILDER_ASSETS" in os.environ:
        outcomes += recovery.run(real=True)
    print("\n" + recovery.summary(outcomes))
    return int(code != 0 or any(map(recovery.fell, outcomes)))


if __name__ == "__main__":
    sys.exit(main())
