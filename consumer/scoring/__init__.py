"""Pure scoring: no I/O, clock, randomness or logging. Read it in this order.

session    what is scored: one agent run, frozen
tool_report what became of its tool calls
tool_kinds which of them are actions, and which look-ups
uptake     which results were taken up later
quantities numbers as texts write them
scorers/   the rule scorers, each 0-1
profile    how sessions with certain labels are scored
gates      hard checks before anything is paid for
aggregate  findings and a verdict to a total, a confidence and risk
criteria   the criteria hash: what can change a score
transcript the session as numbered steps, fit for hostile text
prompt     the judge's prompt, rendered in one pass
sent       the judge's request, as it is stored and rebuilt
verdict    the judge's answer: its schema and its checks
"""
