"""`afflux device`: what boards there are, what they are and count, how they are set."""
