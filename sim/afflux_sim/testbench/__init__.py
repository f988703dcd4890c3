"""Parts of a cocotb testbench for the engine: clock, packet streams, registers, simulator.

Inputs change and outputs are looked at on falling edges, half a cycle before the rising edge at
which the engine takes or gives a beat. So neither side depends on the order in which a simulator
runs callbacks and registers at one edge. No output of the engine may depend on an input of the same
cycle, so the value seen then is the one that holds at the edge.
"""
