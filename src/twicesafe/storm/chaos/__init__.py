"""The chaos lab: storms over stores and operations in which not only processes die.

The network between the servers and their database is cut and slowed down, disks fill up and get slow, clocks jump.
Every trouble has to prove that it struck. `matrix.py` says which storms there are and `plan.py` what befalls each, both
drawn from one seed; `run.py` starts a process for each, `cell.py`, in namespaces of its own. There `weather.py` makes
the troubles (`troubles.py` says what one is) by `link.py`, `relay.py`, `disk.py` and `world.py`.
"""
