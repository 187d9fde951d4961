"""The Rankzero mark as SVG, inline so that neither a browser tab nor a page has to request a file."""

from __future__ import annotations

from urllib.parse import quote

_DRAWING = """<g fill="none" stroke="#666df0" stroke-width="2"><circle cx="12" cy="12" r="4" fill="#666df0"/>
<path d="M12 8V3M12 16v5M8 12H3M16 12h5"/><circle cx="12" cy="12" r="10.5" opacity=".45"/></g>"""
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">{_DRAWING}</svg>'
"""The SVG of the mark. A Material icon would be fetched from the internet."""
ICON = "data:image/svg+xml," + quote(MARK)
"""The mark as a data URL."""
LOGO = f'<img src="{ICON}" width="24" height="24" alt=""><span>Rankzero</span>'
"""Mark and name, as HTML."""
