"""The daemon's web server: alerts and triggers in; health, metrics and the dashboard out.

alerts   Alertmanager's payload to nouns, and which of its alerts the policy names
auth     who may post
files    files that may hang
origin   which requests may change something: no page of another origin
metrics  what Prometheus scrapes
bodies   a request's body, bounded in size and time
app      the endpoints
views    view models of the dashboard's pages
dashboard the pages
render   templates to text; charts and replay_charts as SVG; report_page and replay_page also as one file
connections  bounds of open connections
server   uvicorn in a thread, TLS
"""

from rebalancer.web.app import WebPorts, make_app, make_health_app
from rebalancer.web.http.auth import Auth
from rebalancer.web.http.server import WebServer
from rebalancer.web.metrics import Metrics

__all__ = ["Auth", "Metrics", "WebPorts", "WebServer", "make_app", "make_health_app"]
