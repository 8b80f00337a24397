"""The database, the journal and the report."""
