"""Signing in: passwords, providers and proxies, command lines that ask to be let in, invitations; tries are slowed."""
