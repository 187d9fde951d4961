"""Monitoring of training attempts: hangs, silent mistakes and losses."""
