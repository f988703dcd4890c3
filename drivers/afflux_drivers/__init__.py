"""Drivers: worker, shared memory, aggregator, control channel, over the C++ in drivers/native."""
