"""What the data path between hosts costs this machine, and how many cores a port takes."""
