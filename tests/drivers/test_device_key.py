"""The key of an appliance, from a file that nobody else may read."""

from pathlib import Path

import pytest

from afflux_drivers.device.key import key_of_file

KEY = bytes(range(0x80, 0x90))


def written(tmp_path, content, mode=0o600):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "content",
    [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\r\n", b" " + KEY.hex().encode()],
)
def test_the_bytes_themselves_or_their_digits(tmp_path, content):
    assert key_of_file(written(tmp_path, content)) == KEY


def test_raw_bytes_are_taken_as_they_are(tmp_path):
    key = b"\n" + bytes(14) + b" "
    assert key_of_file(written(tmp_path, key)) == key


@pytest.mark.parametrize(
    "content",
    [
        b"",
        KEY[:15],
        KEY + b"\n",
        KEY.hex().encode()[:-1],
        # Half the digits: as many bytes as a key has.
        b"0123456789abcdef",
        b"0123456789abcde\n",
        b"g" * 32,
        KEY.hex().encode() * 2,
    ],
)
def test_anything_else_is_no_key_and_is_not_shown(tmp_path, content):
    with pytest.raises(ValueError, match="has no key: it must have 16 bytes, or 32") as caught:
        key_of_file(written(tmp_path, content))
    assert content.decode("latin-1").strip() not in str(caught.value) or not content


def test_others_must_not_read_it(tmp_path):
    with pytest.raises(ValueError, match=r"has mode 0640.*chmod 600"):
        key_of_file(written(tmp_path, KEY, 0o640))
    with pytest.raises(ValueError, match="No such file"):
        key_of_file(str(tmp_path / "none"))


def test_who_has_no_home_is_told(monkeypatch):
    def homeless(_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ValueError, match=r"~/key: Could not determine home"):
        key_of_file("~/key")
