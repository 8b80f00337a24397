"""CPU usage from Prometheus, or anything that answers its HTTP API.

client       one HTTP call: timeout, credentials, retries, errors
pool         clients for concurrent range queries
credentials  Authorization, TLS verification, URLs without secrets
decode       responses from bytes to columns
queries      the default PromQL for kube-prometheus-stack, and the policy's own queries
units        shares and cores; implausible values
nodes        series labels to nodes
pods         series labels to pods
contention   CPU waiting time of nodes and pods
reader       snapshot to `Usage`
chunks       a day's range query in parts of bounded size
days         the responses of a day as columns of pods and nodes
ranges       day to `DayBlock`, two queries at a time
slo          the hot-node SLO, read afterwards
probe        the checks of `doctor`
"""
