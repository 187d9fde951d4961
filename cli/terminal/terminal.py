"""What programs print, as it may reach a terminal: its text and colours, nothing that steers the terminal."""

from __future__ import annotations

import codecs
import re

LONGEST_COLOUR = 64
RESET = "\x1b[0m"
_STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All control characters but tab, line feed and carriage return (progress bars), and marks that turn text around."""
_COLOUR = re.compile(r"[0-9;:]*m")
_STRINGS = frozenset("]PX^_\x9d\x90\x98\x9e\x9f")
"""After ESC, or as one character: OSC (titles, links, the clipboard), DCS, SOS, PM, APC."""
_STRING_ENDS = re.compile("\x07|\x9c|\x1b|\n|\x18|\x1a")


class TerminalText:
    """Takes bytes piece by piece, wherever they are cut, and gives text that a terminal may be shown."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = self._text
        self._sequence = ""
        self.is_coloured = False
        """A colour was passed on."""

    def feed(self, piece: bytes, is_last: bool = False) -> str:
        """What the next bytes show."""
        text, position, shown = self._decoder.decode(piece, is_last), 0, list[str]()
        while position < len(text):
            position = self._state(text, position, shown)
        return "".join(shown)

    def _text(self, text: str, position: int, shown: list[str]) -> int:
        found = _STEERING.search(text, position)
        if found is None:
            shown.append(text[position:])
            return len(text)
        shown.append(text[position : found.start()])
        self._begin(found[0])
        return found.end()

    def _begin(self, control: str) -> None:
        self._sequence = ""
        if control == "\x1b":
            self._state = self._escape
        elif control == "\x9b":
            self._state = self._control
        elif control in _STRINGS:
            self._state = self._string

    def _escape(self, text: str, position: int, shown: list[str]) -> int:
        """Behind ESC: what kind of sequence it is."""
        found = text[position]
        if found == "[":
            self._state = self._control
        elif found in _STRINGS:
            self._state = self._string
        elif not "\x20" <= found <= "\x2f":  # those are followed by another character
            self._state = self._text
            return position + ("\x30" <= found <= "\x7e")
        return position + 1

    def _control(self, text: str, position: int, shown: list[str]) -> int:
        """Behind CSI: up to its last character; colours alone are passed on."""
        found = text[position]
        if "\x20" <= found <= "\x3f":
            self._sequence = (self._sequence + found)[: LONGEST_COLOUR + 1]
            return position + 1
        self._state = self._text
        if not "\x40" <= found <= "\x7e":
            return position  # broken off by what is looked at as text
        if _COLOUR.fullmatch(self._sequence + found) and len(self._sequence) <= LONGEST_COLOUR:
            shown.append(f"\x1b[{self._sequence}m")
            self.is_coloured = True
        return position + 1

    def _string(self, text: str, position: int, shown: list[str]) -> int:
        """A string for the terminal: up to its end; a line's end is one too, so that no log is swallowed."""
        found = _STRING_ENDS.search(text, position)
        if found is None:
            return len(text)
        self._state = self._escape if found[0] == "\x1b" else self._text
        return found.start() if found[0] == "\n" else found.end()
