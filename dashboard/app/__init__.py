"""The ASGI application: its routes, assets, pages and server."""
