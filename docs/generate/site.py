"""The site: what `make site` builds of docs/, and why it may refuse.

The generator fails for broken links and anchors. It says nothing of pages that the navigation
lacks, or names in vain, so these are looked for here first.
"""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.generate.engine_page import __main__ as engine_page
from docs.generate.source_tree import ROOT

__all__ = ["SETTINGS", "faults_of", "named_in"]

SETTINGS = ROOT / "zensical.toml"

_ENGINE_PAGE = "engine/index.html"
"""It is recorded anew for each site."""


def named_in(navigation: list[Any]) -> Iterator[str]:
    """Yield the pages that a navigation names, from the docs folder."""
    for entry in navigation:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from named_in(value)


def faults_of(navigation: list[Any], folder: Path) -> list[str]:
    """Return a line for each page of a folder that is not named once, and each name of nothing."""
    named = list(named_in(navigation))
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    missing = sorted({*named} - pages - {_ENGINE_PAGE})
    return [
        *(f"{page} is in no part of the navigation" for page in sorted(pages - {*named})),
        *(f"{page} is in the navigation, but does not exist" for page in missing),
        *(
            f"{page} is in the navigation twice"
            for page in sorted({*named})
            if named.count(page) > 1
        ),
    ]


def main() -> int:
    """Build the site; return the exit status."""
    project = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["project"]
    faults = faults_of(project["nav"], ROOT / project["docs_dir"])
    if faults:
        print("\n".join(f"{SETTINGS.name}: {fault}" for fault in faults), file=sys.stderr)
        return 1
    engine_page.main([str(ROOT / project["docs_dir"] / Path(_ENGINE_PAGE).parent)])
    shutil.rmtree(ROOT / project["site_dir"], ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # The generator has no other place for it, and `--clean` reads nothing of it again.
    shutil.rmtree(ROOT / ".cache", ignore_errors=True)
    # A refusal ends with the generator's own stack, which tells nothing about the page.
    print(done.stdout, end="")
    if done.returncode:
        print(done.stderr.partition("Traceback")[0], end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
