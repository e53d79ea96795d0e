-- One writer at a time, so the order of numbers is the order of commits. AUTOINCREMENT never gives a
-- number twice, also not after the newest event was pruned.
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    task TEXT,
    revision INTEGER NOT NULL,
    attempt INTEGER,
    session TEXT,
    workflow TEXT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX events_task ON events (task, number) WHERE task IS NOT NULL;
CREATE INDEX events_session ON events (session, number) WHERE session IS NOT NULL;
CREATE INDEX events_workflow ON events (workflow, number) WHERE workflow IS NOT NULL;

CREATE TABLE effects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task TEXT,
    attempt INTEGER,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX effects_due ON effects (due_at, id);

CREATE TABLE leases (
    kind TEXT NOT NULL CHECK (kind IN ('attempt', 'worker', 'runner', 'node')),
    subject TEXT NOT NULL,
    number INTEGER NOT NULL,
    fence TEXT NOT NULL,
    mode TEXT NOT NULL,
    until INTEGER NOT NULL,
    beaten_at INTEGER NOT NULL,
    open INTEGER NOT NULL CHECK (open IN (0, 1)),
    PRIMARY KEY (kind, subject, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    answer TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_at ON requests (at);

CREATE TABLE installation (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    made_at INTEGER NOT NULL
) STRICT;
