"""Writes what in the documents derives from the code; `make docs` runs all of it."""
