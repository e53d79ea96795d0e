-- Who works: runners, workers, starts. And what workflows came to: results, diagnostics.

CREATE TABLE runners (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    place TEXT NOT NULL CHECK (place IN ('embedded', 'remote')),
    slots BIGINT NOT NULL CHECK (slots >= 0),
    roles TEXT NOT NULL,
    providers TEXT NOT NULL,
    version TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0)
);

CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    role TEXT NOT NULL,
    state TEXT NOT NULL,
    connection TEXT,
    kind TEXT CHECK (kind IN ('slot', 'pulling', 'external')),
    runner TEXT,
    place TEXT CHECK (place IN ('embedded', 'remote')),
    pid BIGINT CHECK (pid > 1),
    start_time TEXT,
    boot TEXT,
    lease_end BIGINT,
    held_task TEXT,
    held_attempt BIGINT,
    joined_at BIGINT NOT NULL,
    due_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT worker_state CHECK (
        state IN ('gone', 'waiting', 'active')
        AND (connection IS NULL) = (state = 'gone')
        AND (kind IS NULL) = (state = 'gone')
        AND (lease_end IS NULL) = (state = 'gone')
        AND (held_task IS NOT NULL) = (state = 'active')
        AND (held_attempt IS NOT NULL) = (state = 'active')
        AND (runner IS NOT NULL) = (kind IS NOT NULL AND kind = 'slot')
        AND (place IS NULL) = (runner IS NULL)
        AND (pid IS NOT NULL) = (kind IS NOT NULL AND kind <> 'slot')
        AND (start_time IS NULL) = (pid IS NULL)
        AND (boot IS NULL) = (pid IS NULL))
);
CREATE INDEX workers_role ON workers (role) WHERE state <> 'gone';
CREATE INDEX workers_due ON workers (due_at) WHERE due_at IS NOT NULL;

CREATE VIEW workers_with_lease AS
SELECT w.id, w.role, w.state, w.connection, w.kind, w.runner, w.place, w.pid, w.start_time, w.boot,
    coalesce(l.until, w.lease_end) AS lease_end, w.held_task, w.held_attempt, w.joined_at, w.due_at,
    w.revision
FROM workers w
LEFT JOIN leases l ON l.kind = 'worker' AND l.subject = w.id AND l.number = 0;

-- One start of a role is pending at most, and a generation is used once.
CREATE TABLE starts (
    role TEXT NOT NULL,
    generation BIGINT NOT NULL CHECK (generation >= 0),
    id TEXT NOT NULL,
    runner TEXT NOT NULL,
    deadline BIGINT NOT NULL,
    phase TEXT NOT NULL,
    joined_worker TEXT,
    failed_cause TEXT,
    due_at BIGINT,
    pending TEXT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (role, generation),
    CONSTRAINT start_phase CHECK (
        phase IN ('sent', 'started', 'joined', 'failed', 'expired', 'withdrawn')
        AND (pending IS NULL OR pending = role)
        AND (pending IS NOT NULL) = (phase IN ('sent', 'started'))
        AND (joined_worker IS NOT NULL) = (phase = 'joined')
        AND (failed_cause IS NOT NULL) = (phase = 'failed'))
);
CREATE UNIQUE INDEX starts_one_pending ON starts (pending) WHERE pending IS NOT NULL;
CREATE INDEX starts_due ON starts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE results (
    id TEXT NOT NULL PRIMARY KEY,
    workflow TEXT NOT NULL REFERENCES workflows (id) ON DELETE CASCADE,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    markdown TEXT NOT NULL,
    evidence TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'validated', 'rejected')),
    judge TEXT CHECK (judge IN ('person', 'command')),
    exit_code BIGINT,
    submitted_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT result_judge CHECK (
        (judge IS NULL) = (state = 'pending')
        AND (exit_code IS NOT NULL) = (judge IS NOT NULL AND judge = 'command'))
);
CREATE INDEX results_workflow ON results (workflow);

CREATE TABLE diagnostics (
    workflow TEXT NOT NULL REFERENCES workflows (id) ON DELETE CASCADE,
    task TEXT NOT NULL,
    round BIGINT NOT NULL CHECK (round >= 0),
    started_at BIGINT NOT NULL,
    seen TEXT NOT NULL,
    ended TEXT CHECK (ended IN ('cured', 'in_vain', 'failed')),
    ended_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (workflow, task),
    CONSTRAINT diagnostic_end CHECK ((ended IS NULL) = (ended_at IS NULL))
);
