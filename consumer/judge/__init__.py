"""The judge: prompts out, verdicts in, and nothing believed that code did not check.

panel     who is asked how often, and what their answers come to
sample    one accepted verdict of one judge: the prompt, the checks, the corrections
line      one provider: its retries, limits, breaker and account
estimate  how many tokens a text has
"""
