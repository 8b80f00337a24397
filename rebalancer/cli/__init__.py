"""The command line: results on stdout as tables or JSON, everything else on stderr."""
