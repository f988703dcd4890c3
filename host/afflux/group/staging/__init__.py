"""Tensors of other devices than the CPU: on their way through memory of the host, and back."""
