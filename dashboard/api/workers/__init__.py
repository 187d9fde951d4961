"""Routes that workers use."""
