"""Ways to give less of a tensor: a file each, and how those select that select."""
