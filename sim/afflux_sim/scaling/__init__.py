"""The cost of an all-reduce on a star, several engines, a tree and a ring."""
