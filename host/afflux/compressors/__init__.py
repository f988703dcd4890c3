"""Ways to give less of a tensor: one in each file, each of which can stand in a scheme."""
