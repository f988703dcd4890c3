"""Groups of which hosts have several ranks: memory within a host, streams between hosts."""
