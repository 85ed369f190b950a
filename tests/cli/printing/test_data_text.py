"""That JSON and YAML say what a text is, and that a terminal which they reach obeys nothing in it."""

from __future__ import annotations

import json

import pytest
import yaml

from echelon.cli.printing.data_text import json_text, yaml_text

HARMFUL = "".join(
    map(chr, [*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)])
)
TEXTS = [
    "\x9b31mred",
    "abc\u202edcba",
    f"a: {HARMFUL} 'b' \"c\" # d",
    "a\n\u2066b\nc",
    "\x1b]0;title\x07",
    "ü 語 😀",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_as_they_were_and_none_is_obeyed(text: str) -> None:
    value = [{"reason": text, text: 1, "lines": [text * 60]}]
    for written, read in ((json_text(value, indent=2), json.loads), (json_text(value), json.loads)):
        assert read(written) == value
        assert not set(written) & set(HARMFUL)
    written = yaml_text(value)
    assert yaml.safe_load(written) == value
    assert not set(written) & set(HARMFUL)


def test_what_is_harmless_is_written_as_it_is() -> None:
    assert json_text({"a": "ü 語"}) == '{"a":"ü 語"}'
    assert yaml_text({"a": "ü 語", "b": [1, None]}) == "a: ü 語\nb:\n- 1\n- null\n"
    assert list(yaml.safe_load_all(yaml_text({"a": 1}, {"b": 2}))) == [{"a": 1}, {"b": 2}]
