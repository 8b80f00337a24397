"""The HTTP server, its connections, and what a request must bring."""
