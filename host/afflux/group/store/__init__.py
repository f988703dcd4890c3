"""What the ranks of a group tell one another through the store of torch."""
