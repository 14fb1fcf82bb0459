-- What judges cost: a cap a UTC day and provider, held across all replicas. Only adds tables.
-- Amounts are USD, exact to 10^-12: a token at $0.000001 a million still counts. NaN is the greatest
-- of all numbers here: without the second half of each check it would pass for an amount.

CREATE TABLE judge_spend (
    day          date NOT NULL,
    provider     text NOT NULL,
    cap_usd      numeric(24, 12) NOT NULL CHECK (cap_usd >= 0 AND cap_usd < 'NaN'),  -- the last one seen
    -- May pass the cap: a call that cost more than was reserved is booked as it was.
    spent_usd    numeric(24, 12) NOT NULL DEFAULT 0 CHECK (spent_usd >= 0 AND spent_usd < 'NaN'),
    reserved_usd numeric(24, 12) NOT NULL DEFAULT 0 CHECK (reserved_usd >= 0 AND reserved_usd < 'NaN'),
    PRIMARY KEY (day, provider)
);
-- One row changes twice a call: room beside it keeps its versions on one page, away from the index.
ALTER TABLE judge_spend SET (fillfactor = 50);

-- One row a call, kept after its end: the row knows whether its money was given back or booked, so
-- that neither happens twice, in whatever order they come. Outlives its request.
CREATE TABLE judge_reservations (
    reservation_id uuid PRIMARY KEY,
    day            date NOT NULL,
    provider       text NOT NULL,
    request_id     uuid NOT NULL,
    lease_token    uuid NOT NULL,
    amount_usd     numeric(24, 12) NOT NULL CHECK (amount_usd >= 0 AND amount_usd < 'NaN'),
    created_at     timestamptz NOT NULL DEFAULT now(),
    released_at    timestamptz,                     -- its lease ended first; may be settled yet
    settled_at     timestamptz,
    spent_usd      numeric(24, 12) CHECK (spent_usd >= 0 AND spent_usd < 'NaN'),
    FOREIGN KEY (day, provider) REFERENCES judge_spend,
    CONSTRAINT settled_says_what_was_spent CHECK ((settled_at IS NULL) = (spent_usd IS NULL))
);
CREATE INDEX judge_reservations_held ON judge_reservations (request_id)
    WHERE released_at IS NULL AND settled_at IS NULL;
CREATE INDEX judge_reservations_by_day ON judge_reservations (day, provider);
