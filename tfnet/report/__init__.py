"""The report of a run: one page, and the pictures on it.

* `facts.Facts` is what a report is made from: plain values.
* `write.write_report` makes it; `single` draws one picture by itself.
* `figures` holds its numbers, in NumPy alone; nothing here imports
  Matplotlib before `write` or `single` is imported.
"""
