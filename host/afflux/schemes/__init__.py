"""Sums of less than everything: what each rank leaves out, it adds to what it sums later."""
