"""What keeps us from asking a provider more than it can bear. One of each per provider; they know
nothing of each other, of providers, or of the rest of the product. Read them in this order.

breaker      whether to ask at all: not while the provider is unwell
turns        first come, first served, and nothing lost by a cancellation
concurrency  how many calls at a time
rate         how many requests, or tokens, a minute

Times are seconds of a monotonic clock, which is passed in. All is for one event loop: no threads,
and nothing but waiting for one's turn gives up control.
"""
