"""Devices: the registers of a board, however they are reached, and who may use them."""
