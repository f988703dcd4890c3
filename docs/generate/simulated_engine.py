"""An engine in Amaranth's own simulator: its job is created by registers, as a driver does it."""

from collections.abc import Mapping
from typing import Any

from afflux_hdl.contract import registers
from afflux_hdl.engine.engine import Engine

__all__ = ["create_job"]


async def create_job(ctx: Any, engine: Engine, values: Mapping[str, int]) -> None:
    """Write the registers in order, then the CREATE command, and wait until it is carried out."""
    for name, value in {**values, "job_command": registers.Command.CREATE}.items():
        ctx.set(engine.register_address, registers.address_of(name))
        ctx.set(engine.register_write_data, value)
        ctx.set(engine.register_write, 1)
        await ctx.tick()
    ctx.set(engine.register_write, 0)
    ctx.set(engine.register_address, registers.address_of("job_busy"))
    await ctx.tick().repeat(2)
    while ctx.get(engine.register_read_data):
        await ctx.tick()
