"""A board without hardware: the Verilated node, whose ports are interfaces of this machine."""
