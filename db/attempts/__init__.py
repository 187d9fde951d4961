"""Attempts: opened, restarted, rolled back and ended, also when their nodes are lost."""
