"""The node behind the AXI4-Stream ports of a MAC that has clocks of its own."""
