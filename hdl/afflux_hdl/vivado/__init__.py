"""Vivado projects for boards whose parts only AMD's tools can place: written, but not run here."""
