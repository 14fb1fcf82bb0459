-- What judges were sent, byte for byte, in place of the sessions that their prompts were rendered from
-- (`judge_inputs`, which the former program goes on writing until it is gone; `prune` empties both).

CREATE TABLE judge_sent (
    sha256  text PRIMARY KEY CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of what the content was
    content bytea NOT NULL,                                      -- by zlib
    used_at timestamptz NOT NULL DEFAULT now()                   -- last, to the hour; `prune` goes by it
);
ALTER TABLE judge_sent ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX judge_sent_age ON judge_sent (used_at);
