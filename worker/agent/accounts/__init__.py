"""Trainings under accounts other than the worker's: who gets which, and the processes that work for each."""
