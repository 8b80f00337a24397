"""JSON documents and tables."""
