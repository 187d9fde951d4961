"""Browser components: live charts and logs fed by one WebSocket a page."""
