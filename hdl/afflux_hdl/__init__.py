"""The contract (wire, registers) and, above it, the Amaranth gateware: engine and node."""
