"""When gradients are summed: what the next forward pass needs first overtakes all else."""
