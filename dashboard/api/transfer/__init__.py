"""Routes for runs that come from elsewhere, or leave."""
