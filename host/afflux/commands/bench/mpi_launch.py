"""Ranks that an MPI launcher has started: whether MPI works, and where they meet."""

import importlib
import importlib.util
import os
import socket

__all__ = ["NotAvailable", "launched_by_mpi", "meet_through_mpi", "mpi_missing"]


class NotAvailable(RuntimeError):
    """Something that the options ask for is not available; the message gives the reason."""


def launched_by_mpi() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))


def mpi_missing(ranks: int) -> str:
    """Return why `Mpi` cannot run here; empty if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "--compare mpi: the package mpi4py is not installed (pip install mpi4py)"
    try:
        size = importlib.import_module("mpi4py.MPI").COMM_WORLD.Get_size()
    except (ImportError, RuntimeError) as error:
        first, *_ = str(error).splitlines() or [""]
        return f"--compare mpi: mpi4py finds no MPI library here ({first})"
    if size != ranks:
        return (
            f"--compare mpi: MPI knows {size} rank{'s' if size > 1 else ''}, this run has {ranks}: "
            f"start the ranks with MPI, as in `mpirun -n {max(ranks, 2)} afflux bench all_reduce "
            "--compare mpi`"
        )
    return ""


def meet_through_mpi() -> None:
    """Set what torch.distributed reads from the environment, as torchrun would.

    Raises:
        NotAvailable: mpi4py does not work.
    """
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise NotAvailable(
            f"an MPI launcher started this, but mpi4py does not work: {error}"
        ) from None
    world = MPI.COMM_WORLD
    where = None
    if world.Get_rank() == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            where = (socket.gethostname(), probe.getsockname()[1])
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    if local.Get_size() == world.Get_size() and where:
        where = ("127.0.0.1", where[1])
    host, port = world.bcast(where, root=0)
    os.environ |= {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "RANK": str(world.Get_rank()),
        "WORLD_SIZE": str(world.Get_size()),
        "LOCAL_RANK": str(local.Get_rank()),
    }
