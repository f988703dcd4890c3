"""A rank of a set: takes names of scripts from a pipe, runs each in a group of its own, answers."""

import faulthandler
import gc
import importlib
import os
import pickle
import random
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

import afflux  # noqa: F401 - registers the backend
from tests.conformance.outcome import Outcome
from tests.conformance.script import Script, collected

__all__ = ["HOST", "serve"]

HOST = "127.0.0.1"
_PARTING_S = 10.0


def serve(
    connection: Connection,
    rank: int,
    size: int,
    backend: str,
    port: int,
    log: str,
    environment: Mapping[str, str],
) -> None:
    """Run scripts until the pipe gives an empty name of one."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())
    os.close(file)
    faulthandler.enable(sys.stderr)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size)
    )
    os.environ.update(environment)
    dist.set_debug_level_from_env()  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    store = TCPStore(HOST, port, is_master=False)
    # Imported modules stay; they would be most of the time of collecting after each script.
    gc.collect()
    gc.freeze()
    played = 0
    while True:
        module, name = connection.recv()
        if not name:
            break
        importlib.import_module(module)
        script = next(each for each in collected() if each.name == name)
        # A script that is run twice must not meet its own keys.
        own = PrefixStore(f"{played}-{name}", store)
        played += 1
        outcome = _play(script, rank, size, backend, own)
        connection.send_bytes(_pickled(outcome))


def _play(script: Script, rank: int, size: int, backend: str, store: Store) -> Outcome:
    print(f"--- {script.name}", file=sys.stderr, flush=True)
    # Says in the log where it hangs, before it is killed.
    faulthandler.dump_traceback_later(max(1.0, script.limit_s - 2), file=sys.stderr)
    torch.manual_seed(0)
    random.seed(0)
    outcome = Outcome(rank)
    started = time.monotonic()
    try:
        dist.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=script.timeout_s),
        )
        started = time.monotonic()
        outcome.value = script.body(rank, size, backend)
        outcome.seconds = time.monotonic() - started
        # A rank that leaves while another still reads from it would spoil a script that went well.
        if not script.ends_a_rank:
            store.set(f"done{rank}", "")
            store.wait([f"done{each}" for each in range(size)], timedelta(seconds=_PARTING_S))
    except BaseException as error:
        outcome.seconds = time.monotonic() - started
        outcome.kind, outcome.message = type(error).__name__, str(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, dist.DistStoreError) and outcome.value is not None:
            outcome.message = "it passed here, but not at every rank"
    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:
        if not outcome.kind:
            outcome.kind, outcome.message = type(error).__name__, f"at the end: {error}"
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    return outcome


def _pickled(outcome: Outcome) -> bytes:
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        kind, message = type(error).__name__, f"its value cannot be sent: {error}"
        return pickle.dumps(Outcome(outcome.rank, kind=kind, message=message))
