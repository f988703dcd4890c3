"""Where this checkout is, and where what tests write goes."""

from pathlib import Path

__all__ = ["BUILD", "ROOT"]

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
