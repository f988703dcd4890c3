"""The contract: what two ends of a wire, and software and gateware, must agree on. Plain Python."""
