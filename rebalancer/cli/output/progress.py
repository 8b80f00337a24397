"""Progress bars on stderr, if it is a terminal."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class TerminalProgress:
    """`model.decisions.ports.Progress` with a bar for each label, and a line for each event."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "TerminalProgress":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def event(self, text: str) -> None:
        """A line above the bars."""
        if not self._bars.disable:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def step(self, label: str, done: int, total: int | None) -> None:
        """Advance the bar of `label`; a finished bar disappears."""
        if label not in self._tasks:
            self._tasks[label] = self._bars.add_task(label, total=total)
        self._bars.update(self._tasks[label], completed=done, total=total)
        if total is not None and done >= total:
            self._bars.remove_task(self._tasks.pop(label))
