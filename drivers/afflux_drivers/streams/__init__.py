"""Streams: TCP connections between ranks of several hosts."""
