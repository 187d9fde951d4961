"""Collectives of all ranks: their records, aligned, and a sentence about where the ranks disagree."""
