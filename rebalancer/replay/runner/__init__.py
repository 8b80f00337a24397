"""The runs of a replay in parallel: whole or in parts, in processes or on a Dask cluster."""
