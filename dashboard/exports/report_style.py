"""The look of a report: one style sheet, in the browser's theme, for the screen and for paper."""

from __future__ import annotations

import base64
import colorsys
import hashlib
from collections.abc import Sequence

from dashboard.exports.run_colours import PALETTE, colour_numbers

_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 1240px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
h3 { font-size: 15px; margin: 16px 0 4px; } p { margin: 4px 0; }
.muted, figcaption, th, text { color: var(--muted); fill: var(--muted); }
.failed { color: var(--bad); } .note { white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: 12px; }
.scrolls { overflow-x: auto; } table { border-collapse: collapse; overflow-wrap: break-word;
  font-variant-numeric: tabular-nums; }
th { font-weight: 500; } th, td { text-align: left; vertical-align: top; padding: 4px 16px 4px 0;
  border-bottom: 1px solid var(--line); min-width: 56px; max-width: 420px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 16px 24px; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: 14px; }
svg { display: block; width: 100%; height: auto; }
svg.swatch { display: inline-block; width: 12px; height: 12px; margin-right: 6px; } text { font-size: 11px; }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 1.6;
  stroke-linejoin: round; stroke-linecap: round; }
pre { overflow-x: auto; padding: 12px; background: var(--raised); font: 13px/1.45 ui-monospace, monospace;
  overflow-wrap: normal; max-height: 480px; }
ins { color: var(--good); text-decoration: none; } del { color: var(--bad); text-decoration: none; }
@media print { pre { max-height: none; white-space: pre-wrap; } }
"""
_THEMES = {
    "light": "--back: #fff; --text: #1c2033; --muted: #555b70; --line: #dfe2ec; --raised: #f4f5fa; "
    "--bad: #b3261e; --good: #1d6b34;",
    "dark": "--back: #12141c; --text: #e4e7f2; --muted: #a4abc0; --line: #343848; --raised: #1b1e2a; "
    "--bad: #ff9a92; --good: #7fd79a;",
}


def style_sheet(run_ids: Sequence[str]) -> str:
    """Return the style sheet of a report of these runs."""
    light, dark = (f":root {{ {_THEMES[theme]} {_colours(theme, run_ids)} }}" for theme in ("light", "dark"))
    classes = "".join(f".c{place} {{ stroke: var(--c{place}); }}\n" for place in range(len(run_ids)))
    scheme = ":root { color-scheme: light dark; }"
    return f"\n{scheme}\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{classes}{_RULES}"


def policy(style: str) -> str:
    """Return a Content-Security-Policy that allows this style sheet and nothing else: no script, no request."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _colours(theme: str, run_ids: Sequence[str]) -> str:
    numbers = enumerate(colour_numbers(run_ids))
    return " ".join(f"--c{place}: {_colour(number, theme)};" for place, number in numbers)


def _colour(number: int, theme: str) -> str:
    """Return the colour of a number, as the pages choose it."""
    if number < len(PALETTE[theme]):
        return str(PALETTE[theme][number])
    is_dark, percent = theme == "dark", 60 if theme == "dark" else 45
    while True:
        channels = colorsys.hls_to_rgb(number * PALETTE["hue_step"] % 360 / 360, percent / 100, 0.62)
        if _luminance(channels) >= 0.2 if is_dark else _luminance(channels) <= 0.28:
            return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
        percent += 2 if is_dark else -2


def _luminance(channels: tuple[float, float, float]) -> float:
    """Return the relative luminance, as WCAG defines it."""
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
