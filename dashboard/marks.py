"""Our mark, drawn: a browser's tab and the bar over each page show it without asking for a file."""

from __future__ import annotations

from urllib.parse import quote

_DRAWING = """<g fill="none" stroke="#666df0" stroke-width="2"><circle cx="12" cy="12" r="4" fill="#666df0"/>
<path d="M12 8V3M12 16v5M8 12H3M16 12h5"/><circle cx="12" cy="12" r="10.5" opacity=".45"/></g>"""
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">{_DRAWING}</svg>'
"""The icon of the browser's tab. A Material icon here would be fetched from the internet."""
ICON = "data:image/svg+xml," + quote(MARK)
"""The same as an address."""
LOGO = f'<img src="{ICON}" width="24" height="24" alt=""><span>Rankzero</span>'
"""Mark and name, as HTML."""
