"""Exports: the trained model in the formats that others run, each checked.

What is written is loaded back, by other software than wrote it, and run on
real images, before it appears. Nothing heavy is imported before a format is
used.
"""

from tfnet.exports.export import Comparison, export
from tfnet.exports.formats import FORMATS, Format, chosen

__all__ = ["FORMATS", "Comparison", "Format", "chosen", "export"]
