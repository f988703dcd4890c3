"""The aggregation engine: whole frames in, whole frames out, a stage for each file."""
