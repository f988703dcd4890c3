"""A device on the CPU, for tests of streams and events without a GPU: torch knows it as "late".

Its streams are threads, and its copies are late: they read at their beginning, and until one is
over, the memory that it writes is poisoned. So whoever does not wait for an event gets NaN, or -1.
Memory that is freed while a stream uses it, of which nobody has told its allocator, is poisoned as
well.
"""
