"""A board without a host: configured by its controller in UDP packets (`docs/management.md`)."""
