"""A group's settings, by variables, options and torch; and the addresses that they name."""
