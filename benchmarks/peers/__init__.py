"""The peers of tfnet, each written as its own documentation says."""
