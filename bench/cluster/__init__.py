"""A synthetic cluster behind a server, for lists and watches."""
