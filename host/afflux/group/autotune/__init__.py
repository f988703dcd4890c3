"""Shards or Gloo, tensor by tensor: what a short calibration and the calls themselves measure."""
