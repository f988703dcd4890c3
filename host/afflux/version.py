"""The version of what is installed: that of pyproject.toml, which is written nowhere else."""

__all__ = ["version"]


def version() -> str:
    """Return the version of this package."""
    # Not at the top: it takes as long as all options of a command.
    from importlib import metadata

    return metadata.version("afflux")
