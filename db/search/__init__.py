"""The search language in SQL, and the views that are saved with it."""
