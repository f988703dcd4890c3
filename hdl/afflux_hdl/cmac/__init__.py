"""The node behind AMD's CMAC: 100 Gbit/s on UltraScale+ without a shell."""
