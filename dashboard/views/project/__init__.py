"""The page of a project."""
