"""Kinds kept current by watches."""
