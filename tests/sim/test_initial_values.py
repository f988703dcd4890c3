"""Initial values as loops: the same values, in fewer lines."""

from afflux_sim.rtl.compile.initial_values import loops_for_initial_values


def test_a_run_of_equal_values_becomes_a_loop():
    rows = [f"    mem[{row}] = 8'h00;" for row in range(100)]
    text = "\n".join(["  initial begin", *rows, "  end", ""])
    assert loops_for_initial_values(text).splitlines() == [
        "  initial begin",
        "    for (integer row = 0; row < 100; row = row + 1) mem[row] = 8'h00;",
        "  end",
    ]


def test_an_escaped_name_keeps_its_blank():
    text = "\n".join(f"    \\a.b [{row}] = 32'd7;" for row in range(3, 20))
    assert loops_for_initial_values(text) == (
        "    for (integer row = 3; row < 20; row = row + 1) \\a.b [row] = 32'd7;\n"
    )


def test_what_differs_stays():
    rows = [f"    mem[{row}] = 8'h{row:02x};" for row in range(20)]
    apart = [f"    mem[{row}] = 8'h00;" for row in range(0, 40, 2)]
    other = [f"    mem{row}[{row}] = 8'h00;" for row in range(20)]
    text = "\n".join([*rows, *apart, *other, "  assign x[3] = 1'h0;"]) + "\n"
    assert loops_for_initial_values(text) == text
