"""A call: its words, its collectives and tensors, its errors, its turn and its Work."""
