"""Look for Streamlit components in the installed packages once in a process.

Streamlit reads the metadata of each package for that, at the start of a server and for each AppTest: 0.3 s of CPU."""

from __future__ import annotations

from functools import cache

from streamlit.components.v2 import manifest_scanner

manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
