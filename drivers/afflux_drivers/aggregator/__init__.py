"""The aggregator on a host: an engine behind a UDP socket, and its control channel."""
