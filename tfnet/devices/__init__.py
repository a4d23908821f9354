"""Devices: from what is asked for and what is there to a strategy.

* `runtime` prepares the process and imports TensorFlow; nothing of tfnet may
  import it before, so this package imports neither of its modules.
* `start` splits and chooses the devices and gives the strategy over them.
"""
