"""The node: stands between a network port and a host, with the engine in it."""
