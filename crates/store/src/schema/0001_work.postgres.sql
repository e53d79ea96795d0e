-- Events wait here until the sequencer has given them a number: what is committed is seen by it, in
-- whatever order it was committed. Then they move.
CREATE TABLE event_inbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task TEXT,
    revision BIGINT NOT NULL,
    attempt BIGINT,
    session TEXT,
    workflow TEXT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    at BIGINT NOT NULL
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE events (
    number BIGINT PRIMARY KEY,
    task TEXT,
    revision BIGINT NOT NULL,
    attempt BIGINT,
    session TEXT,
    workflow TEXT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX events_task ON events (task, number) WHERE task IS NOT NULL;
CREATE INDEX events_session ON events (session, number) WHERE session IS NOT NULL;
CREATE INDEX events_workflow ON events (workflow, number) WHERE workflow IS NOT NULL;

-- The last number that was given. The lease spares nodes from queueing for it; the row's lock is
-- what makes it right.
CREATE TABLE sequencer (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    last_number BIGINT NOT NULL CHECK (last_number >= 0),
    oldest_number BIGINT NOT NULL CHECK (oldest_number > 0),
    holder TEXT,
    held_until BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO sequencer VALUES (1, 0, 1, NULL, 0);

CREATE TABLE effects (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task TEXT,
    attempt BIGINT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    tries BIGINT NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX effects_due ON effects (due_at, id);

-- Narrow, half empty pages and no second index: a beat is a heap-only update.
CREATE TABLE leases (
    kind TEXT NOT NULL CHECK (kind IN ('attempt', 'worker', 'runner', 'node')),
    subject TEXT NOT NULL,
    number BIGINT NOT NULL,
    fence TEXT NOT NULL,
    mode TEXT NOT NULL,
    until BIGINT NOT NULL,
    beaten_at BIGINT NOT NULL,
    open BIGINT NOT NULL CHECK (open IN (0, 1)),
    PRIMARY KEY (kind, subject, number)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE requests (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    answer TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX requests_at ON requests (at);

-- One row for each transaction that commits decisions: whether it is there tells, after a
-- connection was lost at COMMIT, what became of it.
CREATE TABLE batches (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);
CREATE INDEX batches_at ON batches (at);

CREATE TABLE installation (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    made_at BIGINT NOT NULL
);
