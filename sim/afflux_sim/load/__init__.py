"""Workers that keep a simulated engine busy, to measure it."""
