"""Did it help: which hot nodes were found, which of those lost pods, which cooled, and why not.

Pure: what was read and recorded goes in, sentences and counts come out. `episodes` says when nodes were hot by the
standard, `discovery` and `stuck` what our cycles made of it, `account` what an assessment comes to, `rates` counts it
by days, `cluster` and `comparison` look at all nodes together, `report` is what people get to see.
"""
