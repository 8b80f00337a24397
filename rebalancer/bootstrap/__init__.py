"""The composition root: settings and a policy to adapters, and adapters to the context of a command or the daemon.

Only this package imports adapters of the cluster, Prometheus and the database. It re-exports nothing, so that a command
imports only what it uses.
"""
