"""Shards or Gloo, tensor by tensor: what a short contest and the calls themselves measure."""
