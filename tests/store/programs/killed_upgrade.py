"""An upgrade that is killed: `python -m tests.store.programs.killed_upgrade URL STATEMENT`.

It dies with SIGKILL after so many statements, or at `commit` right before the commit. `count` prints how many there
are.
"""

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event

from rebalancer.store import upgrade


def main(url: str, moment: str) -> None:
    """Upgrade the database until `moment`."""
    done = 0

    def executed(*_: Any) -> None:
        nonlocal done
        done += 1
        if str(done) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def committing(_: Any) -> None:
        if moment == "commit" and done > 1:  # not the reads before it
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", executed)
    event.listen(Engine, "commit", committing)
    upgrade(url)
    print(done)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
