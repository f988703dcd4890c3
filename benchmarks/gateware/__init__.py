"""The hardware design, cycle by cycle."""
