"""Discovery, eviction and effectiveness of hot nodes, with a reason for each miss. Pure functions of records.

`episodes`: when nodes were hot by the hot-node SLO. `discovery`, `blocked`: whether cycles discovered them and why
nothing was evicted. `account`: outcome and change breakdown of an assessment. `rates`: daily counts and rates.
`cluster`, `comparison`: all nodes together. `feedback`: backoff and circuit breaker. `report`: the report.
"""
