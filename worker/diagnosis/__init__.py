"""Diagnosis of an attempt's end, in one sentence."""
