"""What is measured of tfnet from inside: parts that no command times."""
