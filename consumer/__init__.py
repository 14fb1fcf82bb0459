"""The score consumer: score requests in, scores and their events out. Read it as data flows:

events, cloudevents   what is asked and answered on Kafka
intake                Kafka to score_requests
worker                claims requests, runs the pipeline, stores its outcome
pipeline, judge       one request, from session to outcome
scoring/              the pure rules: the same session and verdict always give the same score
outgoing, relay       the outbox, and its way to Kafka
edges/                history, judge providers, postgres, kafka: thin translations
app, cli              the only places that wire things together
"""

__version__ = "0.1.0"
