"""`afflux info`: what this machine offers to Afflux, and what would help."""
