"""The contract (wire, registers) and, above it, the Amaranth engine."""
