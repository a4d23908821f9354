"""Measurements: what README's figures were made with."""
