"""A text that comes with Python: the reference manual's topics, and strings in its modules.

Nearly all strings in three quotation marks are docstrings. Words are in lower case, in the order of
the text; every tenth paragraph is held out. The text differs a little between versions of Python:
`Corpus.mark` tells which it is.
"""

import hashlib
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import torch

__all__ = ["UNKNOWN", "Corpus", "corpus", "words_of"]

UNKNOWN = 0
"""The number of words that are too rare to have one."""

_HELD_OUT_EACH = 10
_LEAST = 3
"""A word that comes less often has no number of its own."""

_MODULES = (
    "argparse ast bdb calendar cmd codecs configparser contextlib copy csv dataclasses difflib dis "
    "doctest enum fractions ftplib functools gettext heapq inspect ipaddress locale mailbox "
    "optparse os pdb pickle pickletools platform plistlib posixpath pprint pydoc random selectors "
    "shutil smtplib socket ssl statistics subprocess tarfile tempfile textwrap threading trace "
    "traceback turtle typing uuid warnings weakref"
)
"""Their names."""


@dataclass(frozen=True)
class Corpus:
    """The text as numbers of words, int64; 0 is `UNKNOWN`, 1 the most frequent word.

    Attributes:
        training: Most of it.
        held_out: Text that training never sees.
        words: How many numbers there are.
        mark: The text's SHA-256, hexadecimal.
    """

    training: torch.Tensor
    held_out: torch.Tensor
    words: int
    mark: str


def words_of(text: str) -> list[str]:
    """Return the words of a text: letters, digits and underscores, in lower case."""
    return re.findall(r"[a-z_][a-z_0-9]*", text.lower())


@cache
def corpus() -> Corpus:
    """Return the text of the Python that runs."""
    # Some topics say the same.
    paragraphs = list(
        dict.fromkeys(each for text in _texts() for each in re.split(r"\n\s*\n", text))
    )
    kept: list[str] = []
    held: list[str] = []
    for number, paragraph in enumerate(paragraphs):
        (held if number % _HELD_OUT_EACH == 0 else kept).extend(words_of(paragraph))
    counted = Counter(kept)
    # Of equally frequent ones the first in the alphabet: nothing depends on the order of a set.
    frequent = sorted((word for word in counted if counted[word] >= _LEAST),
                      key=lambda word: (-counted[word], word))  # fmt: skip
    numbers = {word: number for number, word in enumerate(frequent, start=1)}
    training, held_out = (
        torch.tensor([numbers.get(word, UNKNOWN) for word in part]) for part in (kept, held)
    )
    mark = hashlib.sha256("\n".join(paragraphs).encode()).hexdigest()
    return Corpus(training, held_out, len(numbers) + 1, mark)


def _texts() -> Iterator[str]:
    for name in sorted(topics):
        yield topics[name]
    folder = Path(sysconfig.get_path("stdlib"))
    for name in _MODULES.split():
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        yield from re.findall(r'"""(.+?)"""', source, re.DOTALL)
