"""What a judge was sent comes back byte for byte, and what several samples share is kept once."""

import hashlib
import secrets
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from consumer.scoring.sent import SentRequest, prompt_of, sent_request, unpacked, whole

# Any text but half a surrogate pair, which is sent to nobody; U+0000 included.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NONCE = "0123456789abcdef" * 2


def request(prompt: str, **changes: Any) -> bytes:
    told = {"model": "judge-1", "messages": [{"role": "user", "content": prompt}], **changes}
    return b"chat/completions\n" + to_json(told)


def parts_of(stored: SentRequest) -> tuple[bytes, ...]:
    return tuple(unpacked(content) for content in stored.contents)


@given(texts, texts, st.sampled_from([NONCE, "n", "", "\\", '"', "u0000"]))
def test_a_request_comes_back_as_it_was(before: str, after: str, nonce: str) -> None:
    prompt = f"{before}{nonce}{after}{nonce}"
    sent = request(prompt, temperature=0.0)
    stored = sent_request(sent, prompt, nonce)
    assert whole(parts_of(stored), nonce) == sent
    assert stored.sha256 == hashlib.sha256(sent).hexdigest()
    if nonce == NONCE and prompt:
        assert prompt_of(parts_of(stored), nonce) == prompt
        assert len(stored.contents) == 2


@given(st.binary(max_size=60), texts, texts)
def test_what_is_no_such_request_comes_back_too(sent: bytes, prompt: str, nonce: str) -> None:
    assert whole(parts_of(sent_request(sent, prompt, nonce)), nonce) == sent


@pytest.mark.parametrize(
    ("sent", "prompt"),
    [(b"p\n\0 text", "text"), (request("another"), "text"), (request("text"), "")],
    ids=["a mark in it", "without the prompt", "an empty prompt"],
)
def test_what_can_t_be_marked_is_kept_in_one_piece(sent: bytes, prompt: str) -> None:
    stored = sent_request(sent, prompt, NONCE)
    assert parts_of(stored) == (sent,)
    assert prompt_of(parts_of(stored), NONCE) == sent.decode()


def test_samples_of_a_session_share_all_but_the_nonce() -> None:
    nonces = [secrets.token_hex(16) for _ in range(3)]
    prompts = [f"<<<{nonce}>>> said \0 or \\u0000 <<<END {nonce}>>>" for nonce in nonces]
    stored = [
        sent_request(request(prompt), prompt, nonce)
        for prompt, nonce in zip(prompts, nonces, strict=True)
    ]
    assert len({one.sha256 for one in stored}) == 3
    assert len({one.contents for one in stored}) == 1
    assert [prompt_of(parts_of(stored[0]), nonce) for nonce in nonces] == prompts


def test_judges_share_the_prompt_and_sessions_all_around_it() -> None:
    one, other, further = (
        sent_request(request(prompt, model=model), prompt, NONCE).contents
        for prompt, model in (("first", "a"), ("first", "b"), ("second", "a"))
    )
    assert one[1] == other[1] != further[1]
    assert one[0] == further[0] != other[0]


def test_a_prompt_takes_a_part_of_its_size() -> None:
    prompt = "\n".join(f'{{"step": {n}, "result": "pod {n} is up"}}' for n in range(1000))
    sent = request(prompt)
    assert sent_request(sent, prompt, NONCE).size < len(sent) / 5


@pytest.mark.parametrize("packed", [b"", b"x", b"x\x9c"])
def test_a_damaged_content_is_refused(packed: bytes) -> None:
    (frame, _) = sent_request(request("text"), "text", NONCE).contents
    with pytest.raises(ValueError, match=r".+"):
        unpacked(replace(frame, packed=packed))


def test_a_content_under_another_s_name_is_refused() -> None:
    frame, prompt = sent_request(request("text"), "text", NONCE).contents
    with pytest.raises(ValueError, match="another content"):
        unpacked(replace(frame, packed=prompt.packed))
