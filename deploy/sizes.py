"""The size of each installed package of `requirements-runtime.lock`, as a table in MB, the largest first.

`python deploy/sizes.py` shows the packages of the interpreter that runs it. Bytecode of tests counts as bytecode.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from locks import RUNTIME, read_lock

SHOWN = 9
"""Packages with a line of their own."""
MEGABYTE = 1_000_000


def main() -> None:
    """Print the table."""
    sizes = {name: size_of(name) for name in read_lock(RUNTIME.read_text())}
    ordered = sorted(sizes, key=lambda name: -sizes[name][0])
    others = ordered[SHOWN:]
    rows = ["| package | total | bytecode | tests |\n|---|---|---|---|"]
    for title, names in (
        *((name, [name]) for name in ordered[:SHOWN]),
        (f"{len(others)} others", others),
        ("all", ordered),
    ):
        columns = [sum(sizes[name][column] for name in names) for column in range(3)]
        rows.append(f"| {title} | {' | '.join(f'{each / MEGABYTE:.0f}' for each in columns)} |")
    sys.stdout.write("\n".join(rows) + "\n")


def size_of(name: str) -> tuple[int, int, int]:
    """(all files, bytecode, tests) in bytes; zeros for a package that isn't installed."""
    try:
        files = [Path(str(each.locate())) for each in distribution(name).files or ()]
    except PackageNotFoundError:
        return 0, 0, 0
    total, bytecode, tests = 0, 0, 0
    for path, size in sized(files):
        total += size
        if path.suffix == ".pyc":
            bytecode += size
        elif "tests" in path.parts:
            tests += size
    return total, bytecode, tests


def sized(files: list[Path]) -> Iterator[tuple[Path, int]]:
    """Each file that is there, with its size in bytes."""
    return ((path, path.stat().st_size) for path in files if path.is_file())


if __name__ == "__main__":
    main()
