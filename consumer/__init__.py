"""The score consumer: score requests in, scores and their events out. Read it as data flows:

events, cloudevents   what is asked and answered on Kafka
intake, pauses        Kafka to score_requests; which partitions are read now
worker                claims requests, runs the pipeline, stores its outcome
pipeline              one request, from session to outcome
judge/, limits/       asking a judge, and how much a provider can bear
scoring/              the pure rules: the same session and verdict always give the same score
analytics/            what many scores tell: reports and scorecards
outgoing, relay       the outbox, and its way to Kafka
edges/                history, judge providers, postgres, kafka: thin translations
batches, profiles     many requests at once; which profiles are in use
api/                  HTTP: a room a topic, behind small ports
tracing, traced       spans around all of that, where they are wanted
app, serving, history, judges, cli/  the only places that wire things together
desk, checks, replay, dlq  commands without the loops: score files, try servers, ask a judge again,
                           send dead letters back
"""

__version__ = "0.1.0"
