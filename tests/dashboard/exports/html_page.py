"""An exported page, and text that must not act in it."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """The tags of a document, its text, and its style sheet."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        tag = self.tags[-1] if self.tags else ""
        self.text[tag] = self.text.get(tag, "") + data
