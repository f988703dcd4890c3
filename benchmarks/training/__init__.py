"""Benchmarks of training through the engine: speed, accuracy, bytes on the wire."""
