"""Usage in, from Prometheus or anything that answers its HTTP API.

client   one HTTP call: our timeout, credentials, retries, and errors in the user's words
decode   answers from bytes to columns
queries  the default PromQL for kube-prometheus-stack, and the policy's own
nodes    which node a series speaks of
reader   all of it together: snapshot -> Usage
pieces   a whole day's question, divided so that Prometheus survives it
days     a day's answers, laid over pods and nodes
ranges   both together, two queries at a time: day -> DayBlock
standard the organisation's own definition of a hot node, read afterwards
probe    what `doctor` asks
"""

from rebalancer.prometheus.probe import MetricProbe, Probe
from rebalancer.prometheus.ranges import PrometheusHistory
from rebalancer.prometheus.reader import PrometheusUsage
from rebalancer.prometheus.slo import PrometheusSlo

__all__ = ["MetricProbe", "Probe", "PrometheusHistory", "PrometheusSlo", "PrometheusUsage"]
