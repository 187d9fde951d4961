"""The scripts that run on a host before there is a Python of ours: for sh, and programs that every Linux has. Pure."""

from __future__ import annotations

import shlex

NEEDED_KB = 400 * 1024
"""Free disk for an installation: uv, the worker and its packages, and the older version beside it."""


def with_values(script: str, **values: str) -> str:
    """Return a script that begins by setting these variables."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + script


# Lines that a shell profile prints carry no mark, so they are left out. A home that several machines share gets a
# folder for each. An installation begins with the file `lock`. $trouble is one sentence; the script then ends.
LOOK = """
fail() { say trouble "$1"; rm -f "$home/.try"; exit 0; }
case $home in "~/"*) home=$HOME/${home#??} ;; /*) ;; *) home=$HOME/$home ;; esac
home=${home%/}
near=$home
until [ -d "$near" ]; do near=$(dirname "$near"); done
say system "$(uname -s)"; say machine "$(uname -m)"; say name "$(uname -n)"
disk=$(stat -f -c %T "$near" 2>/dev/null); say disk "$disk"
case $disk in nfs*|lustre|cifs|smb*|gpfs|ceph|afs|beegfs|panfs|fhgfs) home=$home-$(uname -n) ;; esac
say home "$home"
say libc "$( (getconf GNU_LIBC_VERSION || ldd --version) 2>&1 | head -n 1)"
[ "$(uname -s)" = Linux ] || fail "it runs $(uname -s); workers need Linux."
e=$(mkdir -p -m 700 "$home" 2>&1) || fail "its folder $home cannot be made (${e##*: }): name another with --folder."
rm -f "$home/.try"
[ -e "$home/lock" ] || [ -e "$home/current" ] || [ -z "$(ls -A "$home")" ] ||
    fail "its folder $home has other files, and would be removed with the installation: name a new one with --folder."
e=$( (printf '#!/bin/sh\\nexit 0\\n' > "$home/.try") 2>&1) ||
    fail "its folder $home cannot be written (${e##*: }): make room there, or name another with --folder."
chmod 700 "$home/.try"
"$home/.try" 2>/dev/null || fail "no program may run from its folder $home (noexec): name another with --folder."
rm -f "$home/.try"
say free_kb "$(df -Pk "$home" | tail -n 1 | { read -r _ _ _ free _; echo "$free"; })"
say uv "$("$home/uv" --version 2>/dev/null)"
[ -x "$home/current/bin/python" ] &&
    say status "$("$home/current/bin/python" -P -m worker.service.program status "$home" 2>/dev/null)"
say looked yes
"""

# The lock is that of the first of two commands at once; the kernel opens it when the installation ends, however.
_ALONE = """
cd "$home" || exit 1
exec 9> lock
if command -v flock > /dev/null; then flock -w 600 9 || exit 1; fi
"""

BRING_UV = (
    _ALONE
    + """
rm -f uv.new.*
new=uv.new.$$
gzip -dc > $new && chmod 700 $new && ./$new --version > /dev/null && mv $new uv || { rm -f $new; exit 1; }
"""
)

UNPACK = (
    _ALONE
    + """
rm -rf "$folder.new"
mkdir -p "$folder.new" && tar -xzf - -C "$folder.new" && rm -rf "$folder" && mv "$folder.new" "$folder"
"""
)

INSTALL = (
    _ALONE
    + """
[ -e "versions/$version" ] && { say installed already; exit 0; }
export UV_CACHE_DIR="$home/cache" UV_PYTHON_INSTALL_DIR="$home/python" TMPDIR="$home/tmp" UV_NO_PROGRESS=1 UV_NO_BUILD=1
export UV_HTTP_RETRIES=1 UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_TIMEOUT=60 UV_PYTHON_NO_REGISTRY=1
new=versions/$version.new
rm -rf versions/*.new package
mkdir -p versions cache tmp package
tar -xzf - -C package || exit 1
./uv venv -q --no-project --relocatable --python "$python" "$new" || exit 11
say python "$("$new/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
"$new/bin/python" -c "$ask_proxy" || exit 12
./uv pip install -q $source --python "$new/bin/python" -c package/constraints.txt "package/$requirement" || exit 12
"$new/bin/python" -P -c 'import cli.main, worker.agent.worker' || exit 13
mv "$new" "versions/$version" && say installed now
rm -rf wheels
"""
)

ASK_PROXY = """
import socket, sys, urllib.parse, urllib.request
for name, url in urllib.request.getproxies().items():
    proxy = urllib.parse.urlsplit(url if "//" in url else "//" + url)
    if name in ("http", "https", "all") and proxy.hostname:
        try:
            socket.create_connection((proxy.hostname, proxy.port or 80), timeout=3).close()
        except OSError as error:
            sys.exit(f"its proxy {proxy.hostname}:{proxy.port or 80} ({name}_proxy) does not answer: {error}")
"""
"""Python: a proxy that is away costs minutes, as every package is asked for again and again."""

OFFLINE = "--offline --no-index --find-links wheels"

START = """
cd "$home" && say answer "$("versions/$version/bin/python" -P -m worker.service.program start "$home")"
"""

EXAMINE = """
cd "$home" && say answer "$(current/bin/python -P -m worker.service.program examine "$home")"
"""

STOP = """
cd "$home" && say answer "$(current/bin/python -P -m worker.service.program stop "$home")"
"""

UNINSTALL = """
cd / && rm -rf "$home" && say removed yes
"""
