"""The ASGI application: what answers at which address."""
