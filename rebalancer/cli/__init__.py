"""The command line: thin over `daemon`; tables and JSON on stdout, everything else on stderr."""
