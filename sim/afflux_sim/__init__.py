"""The engine without hardware: the golden model, the model checker and the Verilated engine."""
