"""Runs: what a run leaves, and what a person sees of it."""
