"""Routes of the HTTP API: each translates a request and calls one function of the service or the store."""
