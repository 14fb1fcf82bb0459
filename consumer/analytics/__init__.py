"""What many scores tell. Pure: the same figures always give the same report.

selection    which scores are asked for, and where a page of them ends
bootstrap    how sure a figure is
models       agents' models compared
agreement    totals against what humans say
reports      the reports themselves, as HTTP and the command line give them
scorecards   single scores as lists and exports give them
"""
