"""Text for a terminal: what a session or a judge said must not steer the reader's screen."""

from __future__ import annotations

import re
from typing import Any

from rich import text

# C0 and C1 control characters but for tab and line feed: ESC starts cursor and clipboard commands.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(value: str) -> str:
    """The text with control characters replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", value)


class Text(text.Text):
    """rich's Text, of plain text only. Colours come from its styles, never from its words."""

    def __init__(self, content: str = "", *args: Any, **options: Any) -> None:
        super().__init__(plain(content), *args, **options)

    def append(self, content: Any, style: Any = None) -> text.Text:
        """As rich's; a string is made plain first."""
        return super().append(plain(content) if isinstance(content, str) else content, style)
