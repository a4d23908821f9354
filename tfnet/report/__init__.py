"""The report of a run: one page, and the pictures on it.

* `facts.Facts` is what a report is made from: plain values.
* `write.write_report` makes it.
* `figures` holds its numbers, in NumPy alone; nothing here imports
  Matplotlib before `write` is imported.
"""
