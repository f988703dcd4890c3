"""The engine's cost in hardware: synthesis with Yosys, place and route with nextpnr.

`python -m afflux_hdl.synthesis` writes `build/synth.json`; see `docs/cost.md`.
"""
