"""The node as a plugin of the OpenNIC shell, for Alveo cards: `make opennic BOARD=…`."""
