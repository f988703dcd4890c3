"""The gigabit MAC layer: between the pins of an RGMII PHY and the node's packet streams."""
