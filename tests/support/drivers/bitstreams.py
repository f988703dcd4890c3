"""Files like those of ecppack and Vivado, as small as such can be, written from their formats."""

from pathlib import Path

__all__ = ["ecp5_bit", "ecp5_svf", "mcs", "mcs_line", "written", "xilinx_bit", "xilinx_words"]

IDCODES = {"LFE5U-25F": 0x41111043, "LFE5UM5G-45F": 0x81112043, "LFE5UM-45F": 0x01112043}


def ecp5_bit(part: str = "LFE5U-25F-6CABGA256", idcode: int | None = None) -> bytes:
    """Return a .bit file of an ECP5."""
    code = IDCODES[part.rpartition("-")[0]] if idcode is None else idcode
    texts = (
        b"".join(f"{each}\0".encode() for each in (f"Part: {part}", "hello: x")) if part else b""
    )
    commands = b"\x3b\0\0\0" + b"\xe2\0\0\0" + code.to_bytes(4, "big") + b"\x22\0\0\0\x40\0\0\0"
    frames = b"\x82\x91\x00\x10" + bytes(range(1, 200))
    end = b"\xff" * 8 + b"\xc2\x80\0\0\0\0\0\0\x88\x88" + b"\x5e\0\0\0" + b"\xff" * 4
    return b"\xff\0" + texts + b"\xff" + b"\xff\xff\xbd\xb3" + b"\xff" * 4 + commands + frames + end


def ecp5_svf(idcode: int = 0x41111043) -> bytes:
    """Return an .svf file of an ECP5."""
    return f"""\
HDR\t0;
STATE\tIDLE;
SIR\t8\tTDI  (E0);
SDR\t32\tTDI  (00000000)
\t\t\tTDO  ({idcode:08X})
\t\t\tMASK (FFFFFFFF);

SIR\t8\tTDI  (7A);
SDR\t16\tTDI  (1234);

SIR\t8\tTDI  (26);
RUNTEST\tIDLE\t2 TCK\t2.00E-01 SEC;

SIR\t8\tTDI  (3C);
SDR\t32\tTDI  (00000000)
\t\t\tTDO  (00000100)
\t\t\tMASK (00002100);
""".encode()


def xilinx_words(size: int = 4096) -> bytes:
    """Return what an FPGA gets: padding, width detection, synchronisation, words."""
    start = b"\xff" * 64 + bytes.fromhex("000000bb 11220044 ffffffff ffffffff aa995566 20000000")
    return (start + bytes(range(256)) * (size // 256 + 1))[:size]


def xilinx_bit(part: str = "xcu50-fsvh2104-2-e", size: int = 4096) -> bytes:
    """Return a .bit file of Vivado."""

    def field(letter: str, text: str) -> bytes:
        content = text.encode() + b"\0"
        return letter.encode() + len(content).to_bytes(2, "big") + content

    words = xilinx_words(size)
    return (
        bytes.fromhex("0009 0ff00ff00ff00ff000 0001")
        + field("a", "open_nic_shell;UserID=0XFFFFFFFF;Version=2022.1")
        + field("b", part)
        + field("c", "2026/11/25")
        + field("d", "10:40:00")
        + b"e"
        + len(words).to_bytes(4, "big")
        + words
    )


def mcs_line(kind: int, address: int, content: bytes) -> bytes:
    """Return a line of an .mcs file with its checksum."""
    record = bytes([len(content), address >> 8 & 0xFF, address & 0xFF, kind]) + content
    return f":{(record + bytes([-sum(record) & 0xFF])).hex().upper()}\n".encode()


def mcs(start: int, content: bytes) -> bytes:
    """Return an .mcs file with so many bytes from an address on."""
    lines, upper = [], -1
    for place in range(0, len(content), 16):
        address = start + place
        if address >> 16 != upper:
            upper = address >> 16
            lines.append(mcs_line(4, 0, upper.to_bytes(2, "big")))
        lines.append(mcs_line(0, address & 0xFFFF, content[place : place + 16]))
    return b"".join([*lines, mcs_line(1, 0, b"")])


def written(path: Path, content: bytes) -> Path:
    """Write a file, and return its path."""
    path.write_bytes(content)
    return path
