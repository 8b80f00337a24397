"""The fault matrix: what happens in each fault, and its tests. `docs/operations/faults.md` is made from it."""

from tests.faults.matrix.database import DATABASE
from tests.faults.matrix.evictions import EVICTIONS
from tests.faults.matrix.front_door import FRONT_DOOR
from tests.faults.matrix.lease import LEASE
from tests.faults.matrix.process import PROCESS
from tests.faults.matrix.resources import RESOURCES
from tests.faults.matrix.sources import SOURCES

MATRIX = {
    "Evictions": EVICTIONS,
    "Process and clock": PROCESS,
    "Disk, memory, file descriptors, names": RESOURCES,
    "Lease and ledger": LEASE,
    "API server and Prometheus": SOURCES,
    "Database": DATABASE,
    "Web API": FRONT_DOOR,
}
