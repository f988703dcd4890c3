"""Write those parts of the documents that derive from the code; `make docs` runs all of it."""
