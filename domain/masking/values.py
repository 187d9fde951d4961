"""Mask the values of secrets wherever they are printed, logged or reported, without changing any length. Pure."""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from domain.masking.masking import is_secret_variable
from domain.requests.errors import InvalidRequest

T = TypeVar("T")
LEAST_CHARACTERS = 8
LEAST_DIFFERENT = 4
MOST_BYTES = 16 * 1024


class ValueMask:
    """Replaces each byte of the values by `*`, and of the common ways to write them: JSON, repr, URLs, shells, base64,
    hexadecimal.

    Each line of a value is masked by itself, and so are a URL's password and what a JSON document names like a
    secret. What is cut off is masked where half of a line is left."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self._needles: tuple[_Needle, ...] = ()
        self.longest = 0
        """Bytes of the longest text that is masked."""
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._needles)

    def add(self, values: Iterable[str]) -> None:
        """Mask these as well, from now on."""
        self._values |= frozenset(values)
        contents = sorted({content for value in self._values for content in _written(value)})
        self.longest = max(map(len, contents), default=0)
        self._needles = tuple(map(_Needle.of, contents))

    def content(self, content: bytes) -> bytes:
        """The bytes with the values masked; the same object where there are none.

        A value whose beginning alone is there, at least half of it, is masked, too."""
        return self._masked(content, (span for needle in self._needles for span in needle.beginnings(content)))

    def open_end(self, content: bytes) -> int:
        """The number of bytes at the end that may be the beginning of a value, depending on what follows."""
        return max((needle.open_end(content) for needle in self._needles), default=0)

    def text(self, text: str) -> str:
        """The text with the values masked, also where only the second half of one is left."""
        if not self._needles:
            return text
        content = text.encode(errors="surrogatepass")
        masked = self._masked(content, (span for needle in self._needles for span in needle.halves(content)))
        return text if masked is content else masked.decode(errors="surrogatepass")

    def document(self, value: T) -> T:
        """The JSON value with each text in it masked, names among them."""
        if not self._needles:
            return value
        masked: object = value
        if isinstance(value, str):
            masked = self.text(value)
        elif isinstance(value, dict):
            masked = {self.document(name): self.document(entry) for name, entry in value.items()}
        elif isinstance(value, list | tuple):
            masked = [self.document(entry) for entry in value]
        return masked  # type: ignore[return-value]

    @staticmethod
    def _masked(content: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
        masked: bytearray | None = None
        for begin, end in spans:
            masked = bytearray(content) if masked is None else masked
            masked[begin:end] = b"*" * (end - begin)
        return content if masked is None else bytes(masked)


def check_value(value: str) -> None:
    """Raise InvalidRequest for a value that cannot be a secret: masking it would mask half of each log."""
    if "\0" in value:
        raise InvalidRequest("value", "value: an environment variable cannot hold a NUL character.")
    if len(value.encode(errors="surrogatepass")) > MOST_BYTES:
        raise InvalidRequest("value", f"value: a secret has at most {MOST_BYTES // 1024} KiB. Put it into a file.")
    if not _is_distinct(value.strip()):
        raise InvalidRequest(
            "value",
            f"value: a secret has at least {LEAST_CHARACTERS} characters, {LEAST_DIFFERENT} of them different: it is "
            "masked wherever it occurs, and shorter values are too common to mask. Use a longer one, or a variable.",
        )


def doubt(value: str) -> str | None:
    """A sentence on where masking this value does not do what one expects; None where it does."""
    text = value.strip()
    if _WORD.fullmatch(text):
        return "Its value reads like a word or number: where that occurs in logs and names of its runs, it is masked."
    if not any(map(_is_distinct, _lines(text))):
        return f"None of its lines has {LEAST_CHARACTERS} characters: printed one by one, they are not masked."
    return None


_WORD = re.compile(r"[a-z]{,20}|[A-Z][a-z]{,20}|[A-Z]{,20}|\d{,12}")


def _is_distinct(text: str) -> bool:
    """Whether the text is distinct: shorter ones, or a line of dashes, are too common to mask."""
    return len(text) >= LEAST_CHARACTERS and len(set(text)) >= LEAST_DIFFERENT


@dataclass(frozen=True)
class _Needle:
    """One way in which a value may be written."""

    content: bytes
    head: bytes
    tail: bytes

    @classmethod
    def of(cls, content: bytes) -> _Needle:
        half = max(LEAST_CHARACTERS, (len(content) + 1) // 2)
        return cls(content, content[:half], content[-half:])

    def beginnings(self, content: bytes) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each occurrence, as far as it goes."""
        at = content.find(self.head)
        while at >= 0:
            yield at, at + _common(content[at : at + len(self.content)], self.content)
            at = content.find(self.head, at + 1)

    def halves(self, content: bytes) -> Iterator[tuple[int, int]]:
        """Yield those, and the occurrences whose beginning is missing."""
        yield from self.beginnings(content)
        at = content.find(self.tail)
        while at >= 0:
            end = at + len(self.tail)
            before = content[max(0, end - len(self.content)) : end]
            yield end - _common(before[::-1], self.content[::-1]), end
            at = content.find(self.tail, at + 1)

    def open_end(self, content: bytes) -> int:
        """The length of the longest end that is a proper beginning of this."""
        at = content.find(self.content[:1], max(0, len(content) - len(self.content) + 1))
        while at >= 0:
            if self.content.startswith(content[at:]):
                return len(content) - at
            at = content.find(self.content[:1], at + 1)
        return 0


def _common(content: bytes, other: bytes) -> int:
    """The length of the common beginning."""
    if content.startswith(other):
        return len(other)
    return next((at for at, (own, its) in enumerate(zip(content, other, strict=False)) if own != its), len(content))


def _written(value: str) -> Iterator[bytes]:
    """Yield the ways in which a value may be written."""
    parts = {
        part for text in (value, *_inner(value)) for part in (text, text.strip(), *map(str.strip, text.split("\n")))
    }
    texts = {text for part in parts if _is_distinct(part) for text in _escaped(part)}
    yield from (text.encode(errors="surrogatepass") for text in texts)
    yield from (code for code in _base64(value.strip()) if len(code) >= LEAST_CHARACTERS)
    digits = value.strip().encode(errors="surrogatepass").hex().encode()
    yield from (digits, digits.upper())


def _lines(text: str) -> Iterator[str]:
    r"""Yield its lines, also where their ends are written as \n."""
    yield from (line.strip() for line in text.replace("\\n", "\n").splitlines())


def _inner(value: str) -> Iterator[str]:
    """Yield the secrets within a value: the password of a URL, and what a JSON document names like one."""
    with suppress(ValueError):
        password = urlsplit(value.strip()).password or ""
        yield from (password, unquote(password))
    with suppress(ValueError, RecursionError):
        yield from _named_like_secrets("", json.loads(value))


def _named_like_secrets(name: str, document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for key, entry in document.items():
            yield from _named_like_secrets(key, entry)
    elif isinstance(document, list):
        for entry in document:
            yield from _named_like_secrets(name, entry)
    elif isinstance(document, str) and is_secret_variable(name, document):
        yield document


def _escaped(text: str) -> Iterator[str]:
    yield text
    yield from (json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    content = text.encode(errors="surrogatepass")
    yield from (repr(text)[1:-1], repr(content)[2:-1])
    yield from (quote(content, safe=""), quote(content), quote_plus(content))
    yield from (shlex.quote(text).strip("'"), _IN_DOUBLE_QUOTES.sub(r"\\\g<0>", text), _BARE.sub(r"\\\g<0>", text))


_IN_DOUBLE_QUOTES, _BARE = re.compile(r'[$`"\\]'), re.compile(r"[^\w@%+=:,./-]")
"""Characters before which a shell's `export -p` and `printf %q` write a backslash."""


def _base64(text: str) -> Iterator[bytes]:
    """Yield the characters that encode the text alone, at each of the three places at which it may begin."""
    content = text.encode(errors="surrogatepass")
    for before in range(3):
        first, last = (before * 4 + 2) // 3, (before + len(content)) * 8 // 6
        padded = bytes(before) + content
        yield from (encode(padded)[first:last] for encode in (b64encode, urlsafe_b64encode))
