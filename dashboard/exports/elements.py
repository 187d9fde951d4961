"""HTML as a tree, in which every text is escaped when it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree import ElementTree  # nosec B405: only writes

Element = ElementTree.Element
Child = Element | str | None


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element; `_` in names of attributes stands for `-`, a trailing one for nothing."""
    names = {name.rstrip("_").replace("_", "-"): str(value) for name, value in attributes.items()}
    element = Element(tag, names)
    for child in children:
        _append(element, child)
    return element


def table(head: Sequence[Child], rows: Sequence[Sequence[Child]]) -> Element:
    """Return a table that scrolls on its own where it is wider than the page."""
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    titles = element("tr", *(element("th", cell, scope="col") for cell in head))
    parts = [element("thead", titles)] if any(head) else []
    return element("div", element("table", *parts, element("tbody", *lines)), class_="scrolls", tabindex=0)


def written(root: Element) -> str:
    """Return the tree as an HTML document."""
    return f"<!DOCTYPE html>\n{ElementTree.tostring(root, encoding='unicode', method='html')}\n"


def change_texts(root: Element, change: Callable[[str], str]) -> None:
    """Replace each text of the tree that people read; styles stay as they are."""
    for part in root.iter():
        if part.text and part.tag != "style":
            part.text = change(part.text)
        part.tail = change(part.tail) if part.tail else None
        for name in ("aria-label", "title"):
            if name in part.attrib:
                part.set(name, change(part.attrib[name]))


def _append(parent: Element, child: Child) -> None:
    if isinstance(child, str):
        text = child.encode(errors="replace").decode()
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text
    elif child is not None:
        parent.append(child)
