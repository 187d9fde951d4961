"""Attempts: opened, ended, restarted, and ended when their nodes are lost."""
