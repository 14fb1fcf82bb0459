"""What a session says must not reach the terminal as a command."""

from io import StringIO

import pytest
from rich.console import Console

from consumer.plaintext import Text, plain

HOSTILE = "a\x1b[2Jb\x9b31mc\x07d\re\x00"


def shown(text: Text) -> str:
    out = StringIO()
    Console(file=out, force_terminal=True, color_system=None, width=80).print(text)
    return out.getvalue()


def test_control_characters_are_replaced() -> None:
    assert plain(HOSTILE) == "a\ufffd[2Jb\ufffd31mc\ufffdd\ufffde\ufffd"
    assert plain("tab\tline\nüñ漢") == "tab\tline\nüñ漢"


@pytest.mark.parametrize(
    "text",
    [Text(HOSTILE), Text.assemble("x", (HOSTILE, "bold")), Text("x").append(HOSTILE)],
)
def test_no_way_into_a_text_lets_them_through(text: Text) -> None:
    assert not {"\x1b", "\x9b", "\x07", "\r", "\x00"} & set(shown(text))
