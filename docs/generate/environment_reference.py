"""The reference of the environment variables, from the table that the package itself has.

`python -m docs.generate.environment_reference docs/environment.md` writes the text between
`<!-- variables -->` and `<!-- end -->`. A test compares.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from afflux.group.settings import variables

__all__ = ["render"]

_ROW = re.compile(r"^\| (AFFLUX_\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)


def render(text: str) -> str:
    """Return `text` with the reference renewed.

    Raises:
        LookupError: The table does not have just the variables that are read.
    """
    section = "\n".join(["<!-- variables -->", "", *_entries(), "<!-- end -->"])
    return re.sub(r"<!-- variables -->.*<!-- end -->", lambda _: section, text, flags=re.DOTALL)


def _entries() -> Iterator[str]:
    rows = _ROW.findall(variables.__doc__ or "")
    differing = {name for name, *_ in rows} ^ {*variables.VARIABLES, *variables.READ_ELSEWHERE}
    if differing:
        raise LookupError(f"in the table or read, but not both: {', '.join(sorted(differing))}")
    for name, value, meaning in rows:
        kind, _, default = value.rpartition(", ")
        yield f"## {name}\n"
        yield (f"*{kind}; default: {default}*" if kind else f"*{value}*") + "\n"
        text = meaning[0].upper() + meaning[1:].removesuffix(".") + "."
        yield fill(_marked(text), 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _marked(text: str) -> str:
    """Return the text with URLs and names of variables as code, where they are not yet."""
    # A colon at the end belongs to the sentence.
    words = r"(?<!`)\b(?:[a-z]+://(?:[^\s;,():]|:(?!\s)|,(?=[a-z]+://))*|AFFLUX_\w+)"
    return re.sub(words, r"`\g<0>`", text)


def main() -> None:
    """Rewrite the document that the first argument names."""
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
