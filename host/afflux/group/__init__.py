"""A group of ranks: what sums for it, its calls one after the other, its failures."""
