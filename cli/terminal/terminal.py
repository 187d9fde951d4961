"""Filter program output for a terminal: text and colours pass, other control sequences do not."""

from __future__ import annotations

import codecs
import re

LONGEST_COLOUR = 64
RESET = "\x1b[0m"
_STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab, line feed and carriage return (progress bars), and direction marks."""
_COLOUR = re.compile(r"[0-9;:]*m")
_STRINGS = frozenset("]PX^_\x9d\x90\x98\x9e\x9f")
"""After ESC, or as one character: OSC (titles, links, the clipboard), DCS, SOS, PM, APC."""
_STRING_ENDS = re.compile("\x07|\x9c|\x1b|\n|\x18|\x1a")


class TerminalText:
    """An incremental filter from bytes, cut anywhere, to text that is safe for a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = self._text
        self._sequence = ""
        self.is_coloured = False
        """Whether a colour sequence has passed."""

    def feed(self, chunk: bytes, is_last: bool = False) -> str:
        """Return the safe text of the next bytes."""
        text, position, shown = self._decoder.decode(chunk, is_last), 0, list[str]()
        while position < len(text):
            position = self._state(text, position, shown)
        return "".join(shown)

    def _text(self, text: str, position: int, shown: list[str]) -> int:
        match = _STEERING.search(text, position)
        if match is None:
            shown.append(text[position:])
            return len(text)
        shown.append(text[position : match.start()])
        self._begin(match[0])
        return match.end()

    def _begin(self, control: str) -> None:
        self._sequence = ""
        if control == "\x1b":
            self._state = self._escape
        elif control == "\x9b":
            self._state = self._control
        elif control in _STRINGS:
            self._state = self._string

    def _escape(self, text: str, position: int, shown: list[str]) -> int:
        """Classify the sequence after ESC."""
        character = text[position]
        if character == "[":
            self._state = self._control
        elif character in _STRINGS:
            self._state = self._string
        elif not "\x20" <= character <= "\x2f":  # intermediate bytes: another character follows
            self._state = self._text
            return position + ("\x30" <= character <= "\x7e")
        return position + 1

    def _control(self, text: str, position: int, shown: list[str]) -> int:
        """Read a CSI sequence to its final character; only colours pass."""
        character = text[position]
        if "\x20" <= character <= "\x3f":
            self._sequence = (self._sequence + character)[: LONGEST_COLOUR + 1]
            return position + 1
        self._state = self._text
        if not "\x40" <= character <= "\x7e":
            return position  # an invalid sequence: read this character as text
        if _COLOUR.fullmatch(self._sequence + character) and len(self._sequence) <= LONGEST_COLOUR:
            shown.append(f"\x1b[{self._sequence}m")
            self.is_coloured = True
        return position + 1

    def _string(self, text: str, position: int, shown: list[str]) -> int:
        """Skip a control string; a line feed ends it too, so that an unterminated one hides a single line."""
        match = _STRING_ENDS.search(text, position)
        if match is None:
            return len(text)
        self._state = self._escape if match[0] == "\x1b" else self._text
        return match.start() if match[0] == "\n" else match.end()
