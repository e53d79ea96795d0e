-- Who is told, what is counted, what fires; and the trace that a task belongs to.

CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    shape TEXT NOT NULL CHECK (shape IN ('belay', 'slack', 'ntfy')),
    kinds TEXT NOT NULL,
    secret TEXT,
    origin TEXT NOT NULL CHECK (origin IN ('file', 'api')),
    seen BIGINT NOT NULL CHECK (seen >= 0),
    owner TEXT,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0)
);
CREATE UNIQUE INDEX webhooks_name ON webhooks (name);

-- What a webhook is still to be told: a row is made in the commit that moves the hook's cursor, and
-- removed when it is delivered.
CREATE TABLE letters (
    webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    number BIGINT NOT NULL CHECK (number >= 0),
    task TEXT,
    delivery TEXT NOT NULL,
    kind TEXT NOT NULL,
    envelope TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'dead')),
    tries BIGINT NOT NULL CHECK (tries >= 0),
    since BIGINT NOT NULL,
    send_at BIGINT NOT NULL,
    failure TEXT,
    failed_at BIGINT,
    made_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (webhook, number),
    CONSTRAINT letter_failure CHECK ((failure IS NULL) = (failed_at IS NULL))
);
CREATE INDEX letters_state ON letters (webhook, state);

CREATE TABLE meters (
    name TEXT NOT NULL PRIMARY KEY,
    seen BIGINT NOT NULL CHECK (seen >= 0),
    totals TEXT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0)
);

CREATE TABLE alerts (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'firing', 'cleared')),
    since BIGINT NOT NULL,
    until BIGINT,
    sentence TEXT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (kind, subject),
    CONSTRAINT alert_until CHECK ((until IS NOT NULL) = (state = 'cleared'))
);

ALTER TABLE specs ADD COLUMN trace TEXT;
