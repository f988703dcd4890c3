"""Building blocks of engine and node: streams, queues, headers, memories, the tops of designs."""
