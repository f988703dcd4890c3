"""A group's reports to users: flight recorder, trace of collectives, hooks, counts of calls.

A group's core reports each call to its `Observers`: when it is asked for, when it begins, when it
is over, and when the group fails. Nothing here takes part in a collective, so that a fault of an
observer never breaks one.
"""
