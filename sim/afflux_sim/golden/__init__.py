"""The golden model: worker, aggregator, numbers, written from docs/protocol.md alone."""
