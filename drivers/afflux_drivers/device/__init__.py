"""Devices: the registers of a board, however they are reached, and the lock of their users."""
