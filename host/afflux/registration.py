"""How torch comes to know the backend "afflux"."""

from typing import Any

import torch.distributed as dist

from afflux.by_name import serve_by_name, serve_modules_by_name

__all__ = ["register"]


def register() -> None:
    """Register the backend "afflux" for CPU tensors, unless it is registered."""
    if "afflux" not in dist.Backend.backend_list:
        dist.Backend.register_backend("afflux", _create, extended_api=True, devices=["cpu"])
        serve_by_name()


def _create(options: Any, backend_options: Any = None) -> Any:
    # Only now, as some of what a group needs is made when it is first needed.
    from afflux.adapters.choice import create_backend

    serve_modules_by_name()
    return create_backend(options, backend_options)
