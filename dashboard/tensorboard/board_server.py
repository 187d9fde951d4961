"""TensorBoard as a separate program that only the dashboard can reach: serves FOLDER/events on FOLDER/socket."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import socket
import sys
import threading
from typing import Any

from domain.clock import SYSTEM_CLOCK


def main() -> int:
    """Serve a folder of event files on a Unix socket until the dashboard ends."""
    parser = argparse.ArgumentParser(prog="dashboard.tensorboard.board_server", description=__doc__)
    parser.add_argument("folder", help="contains events/ and the socket; access to it allows reading")
    parser.add_argument("--title", default="")
    parser.add_argument("--parent", type=int, required=True, help="process id of the dashboard")
    arguments = parser.parse_args()
    os.nice(NICENESS)
    os.chdir(arguments.folder)  # a socket's path is limited to about a hundred bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN_BYTES, MOST_WRITTEN_BYTES))
    logging.disable(logging.ERROR)  # a torn record would be logged at every reload
    server = _server(_application(arguments.title))
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    while os.getppid() == arguments.parent:
        SYSTEM_CLOCK.pause(1)
    return 0


EVENTS = "events"
SOCKET = "socket"
NICENESS = 10
"""Training on this machine has priority."""
RELOAD_S = 5.0
FIRST_LOAD_S = 5.0
"""Seconds that the first page waits for data; an empty page would have to be reloaded."""
MOST_WRITTEN_BYTES = 1024 * 1024
"""Limit on the log: TensorBoard writes only a few warnings."""
PLUGINS = frozenset(
    {"audio", "core", "custom_scalar", "distribution", "graph", "histogram", "hparams", "image", "mesh",
     "metrics", "pr_curve", "scalar", "text"}
)  # fmt: skip
"""Plugins that show event files. Excluded are those that read further files named in an event file (the projector, the
debugger), and those of other packages."""


def plugins() -> list[Any]:
    """TensorBoard's own plugins among PLUGINS, in its order."""
    from tensorboard import default

    return [plugin for plugin in default.get_static_plugins() if _name(plugin) in PLUGINS]


def _name(plugin: Any) -> str:
    """The package below `tensorboard.plugins` that the plugin comes from."""
    module: str = (plugin if isinstance(plugin, type) else type(plugin)).__module__
    return module.removeprefix("tensorboard.plugins.").partition(".")[0]


def _application(title: str) -> Any:
    from tensorboard import assets, program
    from tensorboard.backend import application
    from tensorboard.backend.event_processing.data_ingester import LocalDataIngester

    board = program.TensorBoard(plugins=plugins())
    # The Python reader: the faster one opens a port that everybody on this machine can reach.
    board.configure(logdir=EVENTS, window_title=title, reload_multifile=True, load_fast="false")
    data = LocalDataIngester(board.flags)
    loaded = threading.Event()
    reloading = (data.deprecated_multiplexer, loaded)
    threading.Thread(target=_reload, args=reloading, name="reload", daemon=True).start()
    loaded.wait(FIRST_LOAD_S)
    return application.TensorBoardWSGIApp(
        board.flags,
        board.plugin_loaders,
        data.data_provider,
        assets.get_default_assets_zip_provider(),
        data.deprecated_multiplexer,
    )


def _reload(multiplexer: Any, loaded: threading.Event) -> None:
    while True:
        try:
            multiplexer.AddRunsFromDirectory(EVENTS)
            multiplexer.Reload()
        except Exception as error:  # a file may vanish while it is read; the next reload tries again
            print(f"reload: {error}", file=sys.stderr)
        loaded.set()
        SYSTEM_CLOCK.pause(RELOAD_S)


def _server(application: Any) -> Any:
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        """Keeps no log of requests."""

        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            """Nothing."""

    listening = socket.socket(socket.AF_UNIX)  # werkzeug would make the path absolute, and too long
    listening.bind(SOCKET)
    listening.listen()
    address = (f"unix://{SOCKET}", 0)
    return make_server(*address, application, threaded=True, request_handler=Quiet, fd=listening.detach())


if __name__ == "__main__":
    sys.exit(main())
