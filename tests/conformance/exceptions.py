"""Tests of PyTorch's that Gloo passes and Afflux cannot, each with the reason."""

__all__ = ["EXCEPTIONS"]

EXCEPTIONS = {
    "test_ddp_logging_data_cpu": (
        "DDP's logging data has the group's type, which torch keeps as one of a few built-in "
        'backends; every other one is "custom"'
    ),
}
