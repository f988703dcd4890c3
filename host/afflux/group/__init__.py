"""A group of ranks: how it comes together, carries out its calls in order, fails and ends."""
