# syntax=docker/dockerfile:1
# The image of the score consumer: `make image`. The Python that the tests run on, nothing that builds.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv --without-pip /app/venv
# Before the sources: what is pinned changes seldom.
COPY requirements/image.txt requirements/image.txt
RUN pip --python /app/venv/bin/python install --require-hashes --requirement requirements/image.txt
COPY pyproject.toml README.md ./
COPY consumer consumer
COPY config config
COPY sql sql
COPY schemas schemas
# Built by the pinned hatchling, which is taken out again with what it alone needs; the check fails
# the build where something else does.
RUN pip --python /app/venv/bin/python install --no-deps --no-build-isolation . \
    && pip --python /app/venv/bin/python uninstall --yes \
        hatchling editables pathspec pluggy tomlkit trove-classifiers \
    && pip --python /app/venv/bin/python check \
    && /app/venv/bin/python -m compileall -q /app/venv/lib

FROM python:${PYTHON}-slim-bookworm
ARG VERSION=unknown
LABEL org.opencontainers.image.title="score-consumer" \
      org.opencontainers.image.description="Scores AI agent sessions: requests from Kafka, scores to PostgreSQL and Kafka" \
      org.opencontainers.image.version="${VERSION}"
RUN pip uninstall --yes --root-user-action=ignore setuptools wheel pip \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin consumer
COPY --from=build /app/venv /app/venv
# Where your own files are mounted: each, or all.
COPY config /app/config
# Nothing is written but to /tmp: the root file system can be read-only.
ENV PATH=/app/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SCORING_CONFIG_DIR=/app/config
WORKDIR /app
USER 10001:10001
EXPOSE 8080
# Kubernetes has probes of its own; this is for Docker.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ.get(\"HTTP_PORT\") or 8080}/healthz', timeout=4)"]
# No shell in between: SIGTERM reaches the consumer.
ENTRYPOINT ["score-consumer"]
CMD ["run"]
