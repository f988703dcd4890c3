"""The name of this machine's processor."""

from pathlib import Path

__all__ = ["processor_name"]


def processor_name() -> str:
    """Return the name that the processor gives itself; empty if it gives none."""
    return _field("/proc/cpuinfo", "model name")


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
