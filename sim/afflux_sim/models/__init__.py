"""Small models of the protocol, and the checker that visits all of their states."""
