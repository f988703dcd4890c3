"""From Amaranth to a shared library: Verilog, Verilator, compiler, a cache of their results."""
