"""What pages of other programs need in a sandbox: the hash of their scripts, storage, and an origin that is `null`."""

from __future__ import annotations

import hashlib
from base64 import b64encode

CORS = {
    "Access-Control-Allow-Origin": "null",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Allow-Methods": "GET, HEAD, POST",
    "Access-Control-Max-Age": "600",
}
"""A sandboxed page has the origin `null`; TensorBoard requests with credentials, though it has none."""
STORAGE = """
  const storage = {
    getItem: (key) => kept.get(String(key)) ?? null,
    setItem: (key, value) => { kept.set(String(key), String(value)); },
    removeItem: (key) => { kept.delete(String(key)); },
    clear: () => kept.clear(),
    key: (number) => [...kept.keys()][number] ?? null,
    get length() { return kept.size; },
  };
  for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, {configurable: true, value: storage});
  }
"""
"""JavaScript that substitutes both storages, which a sandboxed page lacks, by the Map `kept`."""


def source_hash(text: str) -> str:
    """The source expression with which a content security policy allows this inline script or style."""
    return "'sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
