"""A rank's end of a group whose ranks share memory."""
