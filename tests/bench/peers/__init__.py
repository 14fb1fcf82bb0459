"""The consumer beside what else one could judge sessions with: same judge, prompts and calls.

Each peer is used as its documentation says for many calls at a time. SET lists what was chosen, and
where that is said. Common to all:

- The session's text is all that the consumer asks of its judge for it, about 100 kB in one text;
  the peers put their own frame around it. Answers have about 7 kB. A peer asks for one grade of 0
  to 10 with an explanation, in a shape of its own (JSON schema, tool call, JSON after a schema in
  the prompt), where the consumer asks for a verdict on four criteria with evidence.
- A peer only judges. The consumer also takes requests from Kafka, fetches sessions, checks the
  verdict's quotes, applies rules, writes to PostgreSQL and announces each score.
- All have 64 slots, and the judge sees no more calls at once: a column says so. A peer's slot is a
  session, waits between tries included; the consumer's is a call, as is its own design, and half
  as many sessions again are fetched, stored or wait. `by-hand` is no library, but the OpenAI client
  in a loop: the judge's own limit.
- Each judges one session before it counts, so that late imports cost nothing.
- Each may try a call five times again. Where a peer leaves that to the OpenAI client, the client
  follows Retry-After.
- The steady part (from 10 % to 90 % of the answers) is measured by the stand-in's clock for peers,
  by the database's for the consumer. CPU is user and system time of the process and its children,
  over all sessions. Memory is the most that the process held, libraries included.
- A session is scored where grade and the mark in its explanation are its own, failed where the peer
  tells of an error with it, missing where there is neither.
- Telemetry is off by the documented switches, and connections beyond this machine are refused.

What cannot be set, or was found on the way:

- phoenix goes down to one call at a time after two errors within 30 s, and needs 5 s without any
  for each call more; async_evaluate_dataframe has no switch for that. Its OpenAI client is made
  with max_retries=0.
- deepeval makes an OpenAI client for each call. Without an HTTP client for all of them, each would
  load certificates anew.
- ragas's arun() starts all rows at once (its pull request 2459 would add a limit, and is open); a
  row whose call fails is printed and left out of the result. aevaluate() makes it NaN, and its
  metric answers no explanation, so that a result is known by its place alone.
- openevals runs no batches itself.
"""

from __future__ import annotations

from collections.abc import Mapping

# By the module's name, with a hyphen for each underscore: what is set, and where that is said.
SET: Mapping[str, Mapping[str, str]] = {
    "phoenix": {
        "create_classifier(choices 0..10), async_evaluate_dataframe": "API reference, README",
        "concurrency=64, max_retries=5, exit_on_error=False": "docstring, the example on retries",
        "LLM(initial_per_second_request_rate=1000), else 5": "docstring of LLM",
    },
    "deepeval": {
        "evaluate() with GEval": "docs/metrics-llm-evals",
        "evaluation_steps, else one more call": "docs/metrics-llm-evals",
        "AsyncConfig(max_concurrent=64, throttle_value=0)": "docs/evaluation-flags-and-configs",
        "ErrorConfig(ignore_errors=True)": "docs/evaluation-flags-and-configs",
        "CacheConfig, DisplayConfig: nothing written or shown": "docs/evaluation-flags-and-configs",
        "DEEPEVAL_RETRY_MAX_ATTEMPTS=6": "docs/environment-variables",
        "DEEPEVAL_TELEMETRY_OPT_OUT=1": "docs/environment-variables",
        "OpenAIModel(async_http_client)": "its issue 2351",
    },
    "ragas": {
        "@experiment in place of evaluate()": "howtos/migrations/migrate_from_v03_to_v04",
        "NumericMetric(allowed_values=(0, 10)).ascore": "docstring",
        "a semaphore of 64 in the experiment": "none; arun() has no limit",
        "llm_factory(client=AsyncOpenAI(max_retries=5))": "docstring; README of openai on retries",
        "RAGAS_DO_NOT_TRACK=true": "README",
    },
    "ragas-evaluate": {
        "aevaluate() with SimpleCriteriaScore": "docstring; it warns that it is deprecated",
        "RunConfig(max_workers=64, max_retries=5)": "references/run_config",
        "llm_factory(client=AsyncOpenAI(max_retries=5))": "docstring; README of openai on retries",
        "RAGAS_DO_NOT_TRACK=true": "README",
    },
    "openevals": {
        "create_async_llm_as_judge": "README, Python async support",
        "judge=AsyncOpenAI(max_retries=5)": "README, customizing the model; README of openai",
        "choices=[0..10]": "README, customizing output score values",
        "asyncio.gather under a semaphore of 64": "none; it runs no batches",
        "LANGSMITH_TRACING=false": "the default",
    },
    "by-hand": {
        "AsyncOpenAI(max_retries=5), chat.completions.create": "README of openai",
        "asyncio.gather under a semaphore of 64": "none; it is no library for judging",
    },
    "pydantic-evals": {
        "Dataset.evaluate(max_concurrency=64)": "evals/how-to/concurrency",
        "retry_evaluators: 6 attempts, waits of 1 to 10 s": "evals/how-to/retry-strategies",
        "GEval(score_range=(0, 10), evaluation_steps)": "docstring",
        "no logfire, so nothing is sent": "evals/quick-start",
    },
}
