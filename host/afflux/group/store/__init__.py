"""The messages of a group's ranks through the store of torch."""
