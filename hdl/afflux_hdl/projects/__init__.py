"""The command that writes Vivado projects, whatever stands at their pins."""
