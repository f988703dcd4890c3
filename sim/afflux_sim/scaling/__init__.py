"""What an all-reduce costs on a star, several engines, a tree and a ring."""
