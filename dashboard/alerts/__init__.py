"""Watch runs for alert rules, and send messages outside of every request."""
