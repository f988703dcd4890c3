"""The engine's RTL, simulated inside this process by Verilator."""
