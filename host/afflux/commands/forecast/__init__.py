"""The cost of the data path between hosts on this machine, and the cores that a port takes."""
