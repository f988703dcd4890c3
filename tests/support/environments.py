"""Virtual environments for programs that try an installed Afflux: `make compat`, `make wheels`.

pip's own variables and configuration apply.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

__all__ = ["Environment", "pinned"]


class Environment:
    """A virtual environment, which is made if it is not there yet.

    Args:
        folder: Its place.
        interpreter: The Python to make it with.

    Attributes:
        python: Its interpreter.

    Raises:
        subprocess.CalledProcessError: The interpreter cannot make one.
    """

    def __init__(self, folder: Path, interpreter: str = sys.executable) -> None:
        self._folder = folder
        self.python = folder / "bin" / "python"
        if not self.python.exists():
            subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)

    def pip(self, *arguments: str) -> str:
        """Run pip, and return its standard output.

        Raises:
            subprocess.CalledProcessError: pip has failed, and has said why on stderr.
        """
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, check=True, cwd=ROOT, text=True, stdout=subprocess.PIPE)
        return done.stdout

    def announce(self, *wanted: str) -> None:
        """Tell a person who could still interrupt what pip would bring, and where to.

        Args:
            wanted: Arguments of `pip install`.
        """
        asked = self.pip("install", "--quiet", "--dry-run", "--report", "-", *wanted)
        found = [each["metadata"] for each in json.loads(asked)["install"]]
        names = [each["name"] for each in found]
        if found:
            told = ", ".join(f"{each['name']} {each['version']}" for each in found)
            print(f"\nTo be installed below {self._folder}: {told}", flush=True)
        if any(name.startswith("nvidia-") for name in names):
            print(
                "\ntorch comes with its CUDA packages here: about 3 GB to download, 6 GB on disk, "
                f"below {self._folder}. A CPU build is enough: interrupt, point pip to an index or "
                "folder that has one (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), and run this again.\n",
                flush=True,
            )


def pinned(*names: str) -> list[str]:
    """Return the requirements of these packages, as `constraints.txt` has them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.split("==")[0] in names]
