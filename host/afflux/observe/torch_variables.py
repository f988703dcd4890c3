"""The environment variables of torch's flight recorder, which rule this one too.

| variable (older name) | default | meaning |
|---|---|---|
| TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) | unset | calls that are kept; 0: none |
| TORCH_FR_DUMP_TEMP_FILE (TORCH_NCCL_DEBUG_INFO_TEMP_FILE) | torch's cache | where dumps go: this text with the global rank at its end |
| TORCH_FR_DUMP_ON_TIMEOUT (TORCH_NCCL_DUMP_ON_TIMEOUT) | see below | whether a group that fails writes a dump |
| TORCH_FR_CPP_STACK (TORCH_NCCL_TRACE_CPP_STACK) | 0 | whether stacks have the frames of C++ too |
| TORCH_INCLUDE_STACK_TRACE | 1 | whether stacks are recorded and dumped |
| TORCH_INCLUDE_ONLY_ACTIVE | 0 | whether a dump leaves out calls that are over |

Calls are recorded if one of the first three is set, and not to 0. A dump is written at a failure if
its file is named or it is asked for, unless it is forbidden.
"""  # noqa: E501 - a table row is one line

import os
from pathlib import Path

__all__ = [
    "buffer_size",
    "cpp_stacks",
    "dump_prefix",
    "dumps_at_failure",
    "only_active",
    "stacks",
]

_BUFFER_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_CPP_STACK = ("TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK")
_STACKS = ("TORCH_INCLUDE_STACK_TRACE",)
_ONLY_ACTIVE = ("TORCH_INCLUDE_ONLY_ACTIVE",)

_DEFAULT_BUFFER_SIZE = 2000

# As torch's getCvarBool takes them, in any case.
_TRUE = {"y", "yes", "1", "t", "true"}
_FALSE = {"n", "no", "0", "f", "false"}


def _first(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first of the variables that is set, with its value."""
    for name in names:
        value = os.environ.get(name, "")
        if value:
            return name, value
    return None


def _flag(names: tuple[str, ...]) -> bool | None:
    found = _first(names)
    if found is None:
        return None
    name, value = found
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"{name}={value!r}: must be 1 or 0")


def buffer_size() -> int:
    """Return how many calls the recorder keeps; 0 if it is off.

    Raises:
        ValueError: A variable has a value that it cannot have.
    """
    found = _first(_BUFFER_SIZE)
    if found is None:
        return _DEFAULT_BUFFER_SIZE if dumps_at_failure() else 0
    name, value = found
    try:
        size = int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r}: must be an integer") from None
    return max(size, 0)


def dumps_at_failure() -> bool:
    """Return whether a group that fails writes a dump.

    Raises:
        ValueError: A variable has a value that it cannot have.
    """
    asked = _flag(_ON_TIMEOUT)
    return _first(_FILE) is not None if asked is None else asked


def dump_prefix() -> str:
    """Return where dumps go, but for the global rank at the end."""
    found = _first(_FILE)
    if found is not None:
        return found[1]
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(cache) / "torch" / "comm_lib_trace_rank_")


def stacks() -> bool:
    """Return whether calls are recorded with their stacks."""
    return _flag(_STACKS) is not False


def cpp_stacks() -> bool:
    """Return whether stacks have the frames of C++ too."""
    return _flag(_CPP_STACK) is True


def only_active() -> bool:
    """Return whether a dump leaves out calls that are over."""
    return _flag(_ONLY_ACTIVE) is True
