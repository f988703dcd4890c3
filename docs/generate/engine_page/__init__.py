"""A page that replays the engine cycle by cycle, from runs of its RTL."""
