-- What Belay remembers. One text for both databases: BIGINT is INTEGER in SQLite, where every table
-- is STRICT. Ids are text, moments are milliseconds since 1970, yes and no are 1 and 0. Every row of
-- a decision has a revision, which grows by one with each change; leases have none.

CREATE TABLE accounts (
    name TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    limited_until BIGINT,
    probed_by TEXT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT account_state CHECK (
        (state = 'open' AND limited_until IS NULL AND probed_by IS NULL)
        OR (state = 'limited' AND limited_until IS NOT NULL AND probed_by IS NULL)
        OR (state = 'probed' AND limited_until IS NULL AND probed_by IS NOT NULL))
);

CREATE TABLE roles (
    name TEXT NOT NULL PRIMARY KEY,
    desired TEXT NOT NULL CHECK (desired IN ('running', 'stopped_drain', 'stopped_now')),
    workers BIGINT NOT NULL CHECK (workers >= 0),
    breaker TEXT NOT NULL,
    breaker_exits TEXT,
    breaker_openings BIGINT CHECK (breaker_openings >= 0),
    breaker_until BIGINT,
    breaker_cause TEXT,
    generation BIGINT NOT NULL CHECK (generation >= 0),
    agent TEXT,
    model TEXT,
    provider TEXT,
    limits TEXT NOT NULL,
    environment TEXT NOT NULL,
    due_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT role_breaker CHECK (
        breaker IN ('closed', 'cooling', 'held')
        AND (breaker_exits IS NOT NULL) = (breaker = 'closed')
        AND (breaker_openings IS NOT NULL) = (breaker <> 'held')
        AND (breaker_until IS NOT NULL) = (breaker = 'cooling')
        AND (breaker_cause IS NOT NULL) = (breaker = 'held'))
);
CREATE INDEX roles_due ON roles (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE workflows (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    goal TEXT NOT NULL,
    on_validated TEXT NOT NULL CHECK (on_validated IN ('stop_all', 'nothing')),
    validation TEXT,
    round BIGINT NOT NULL CHECK (round >= 0),
    created_at BIGINT NOT NULL,
    due_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0)
);
CREATE INDEX workflows_due ON workflows (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    sandbox TEXT,
    reason TEXT,
    kept TEXT CHECK (kept IN ('memory', 'files', 'frozen', 'disk', 'tree')),
    kept_id TEXT,
    leftover TEXT,
    moves BIGINT NOT NULL CHECK (moves >= 0),
    epoch BIGINT NOT NULL CHECK (epoch >= 0),
    lock_number BIGINT,
    lock_holder TEXT,
    lock_until BIGINT,
    snapshot_failures BIGINT NOT NULL CHECK (snapshot_failures >= 0),
    tree TEXT NOT NULL CHECK (tree IN ('unsaved', 'saved')),
    attempt TEXT NOT NULL CHECK (attempt IN ('none', 'live')),
    runner TEXT,
    owner TEXT,
    conversation TEXT,
    keep_alive BIGINT NOT NULL CHECK (keep_alive IN (0, 1)),
    created_at BIGINT NOT NULL,
    due_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT session_state CHECK (
        state IN ('new', 'running', 'pausing', 'paused', 'stopped')
        AND (sandbox IS NOT NULL) = (state IN ('running', 'pausing'))
        AND (kept IS NOT NULL) = (state IN ('pausing', 'paused', 'stopped'))
        AND (kept_id IS NOT NULL) = (kept IS NOT NULL AND kept <> 'tree')
        AND (leftover IS NULL OR state IN ('paused', 'stopped'))
        AND CASE state
            WHEN 'pausing' THEN reason IN ('inactivity', 'orphaned', 'blocked', 'ready')
            WHEN 'paused' THEN reason IN ('inactivity', 'orphaned', 'blocked', 'ready')
            WHEN 'stopped' THEN reason IN ('done', 'cancelled', 'failed', 'snapshot_failed')
            ELSE reason IS NULL END),
    CONSTRAINT session_lock CHECK (
        (lock_number IS NULL) = (lock_holder IS NULL)
        AND (lock_number IS NULL) = (lock_until IS NULL))
);
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_running ON sessions (owner) WHERE state = 'running';

CREATE TABLE sandboxes (
    id TEXT NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    state TEXT NOT NULL,
    completed_at BIGINT,
    fault TEXT,
    epoch BIGINT NOT NULL CHECK (epoch >= 0),
    provider TEXT NOT NULL,
    runner TEXT,
    reference TEXT,
    buried BIGINT NOT NULL CHECK (buried IN (0, 1)),
    evidence TEXT,
    created_at BIGINT NOT NULL,
    due_at BIGINT,
    live TEXT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT sandbox_state CHECK (
        (completed_at IS NOT NULL) = (state = 'COMPLETED')
        AND (live IS NULL OR live = session)
        AND (live IS NOT NULL) = (buried = 0 AND state NOT IN ('DEAD', 'TERMINATED'))
        AND CASE state
            WHEN 'IDLE' THEN fault IN ('idle', 'stuck')
            WHEN 'DEAD' THEN fault IN
                ('never_started', 'heartbeat_timeout', 'agent_failed', 'exited')
            WHEN 'CREATED' THEN fault IS NULL
            WHEN 'RUNNING' THEN fault IS NULL
            WHEN 'COMPLETED' THEN fault IS NULL
            WHEN 'RESUMED' THEN fault IS NULL
            WHEN 'PAUSED' THEN fault IS NULL
            WHEN 'TERMINATED' THEN fault IS NULL
            ELSE 1 = 0 END)
);
CREATE UNIQUE INDEX sandboxes_one_live ON sandboxes (live) WHERE live IS NOT NULL;
CREATE INDEX sandboxes_due ON sandboxes (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sandboxes_session ON sandboxes (session);

CREATE TABLE tasks (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    parent TEXT REFERENCES tasks (id),
    review TEXT NOT NULL CHECK (review IN ('manual', 'auto')),
    max_attempts BIGINT NOT NULL CHECK (max_attempts >= 0),
    state TEXT NOT NULL,
    plan TEXT CHECK (plan IN ('fresh', 'same', 'republish')),
    not_before BIGINT,
    attempt BIGINT CHECK (attempt >= 0),
    question TEXT,
    variant TEXT,
    cause TEXT,
    failed_by TEXT,
    clock TEXT,
    reason TEXT NOT NULL,
    reason_detail TEXT,
    since BIGINT NOT NULL,
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    tries BIGINT NOT NULL CHECK (tries >= 0),
    failed_starts BIGINT NOT NULL CHECK (failed_starts >= 0),
    parks BIGINT NOT NULL CHECK (parks >= 0),
    fruitless BIGINT NOT NULL CHECK (fruitless >= 0),
    root TEXT NOT NULL,
    role TEXT NOT NULL,
    session TEXT REFERENCES sessions (id),
    workflow TEXT REFERENCES workflows (id),
    account TEXT,
    priority BIGINT NOT NULL,
    unfinished BIGINT NOT NULL CHECK (unfinished >= 0),
    disregarded BIGINT NOT NULL CHECK (disregarded IN (0, 1)),
    created_at BIGINT NOT NULL,
    due_at BIGINT,
    claim_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT task_state CHECK (
        (variant IS NULL OR state IN ('BLOCKED', 'FAILED'))
        AND (not_before IS NULL OR state = 'QUEUED')
        AND (question IS NULL) = (variant IS NULL OR variant NOT IN ('held', 'question'))
        AND (cause IS NULL) = (variant IS NULL OR variant <> 'cause')
        AND (failed_by IS NULL) = (variant IS NULL OR variant NOT IN ('dependency', 'subtask'))
        AND (clock IS NULL) = (state <> 'TIMED_OUT')
        AND (claim_at IS NULL OR (state = 'QUEUED' AND unfinished = 0))
        AND CASE state
            WHEN 'PENDING' THEN plan IS NOT NULL AND attempt IS NULL
            WHEN 'QUEUED' THEN plan IS NOT NULL AND attempt IS NULL
            WHEN 'CLAIMED' THEN plan IS NOT NULL AND attempt IS NOT NULL
            WHEN 'RUNNING' THEN plan IS NOT NULL AND attempt IS NOT NULL
            WHEN 'READY' THEN plan IS NULL AND attempt IS NOT NULL
            WHEN 'COMPLETED' THEN plan IS NULL AND attempt IS NULL
            WHEN 'TIMED_OUT' THEN plan IS NULL AND attempt IS NULL
            WHEN 'CANCELLED' THEN plan IS NULL AND attempt IS NULL
            WHEN 'BUDGET_EXCEEDED' THEN plan IS NULL AND attempt IS NULL
            WHEN 'BLOCKED' THEN plan IS NULL AND CASE variant
                WHEN 'held' THEN attempt IS NOT NULL
                WHEN 'question' THEN attempt IS NULL
                WHEN 'subtasks' THEN attempt IS NOT NULL
                ELSE 1 = 0 END
            WHEN 'FAILED' THEN CASE variant
                WHEN 'cause' THEN plan IS NULL AND attempt IS NULL
                WHEN 'dependency' THEN plan IS NOT NULL AND attempt IS NULL
                WHEN 'subtask' THEN plan IS NULL AND attempt IS NOT NULL
                WHEN 'publish' THEN plan IS NULL AND attempt IS NULL
                ELSE 1 = 0 END
            ELSE 1 = 0 END),
    CONSTRAINT task_reason CHECK (
        (reason_detail IS NOT NULL AND reason IN ('asked', 'requeued', 'retrying', 'ended'))
        OR (reason_detail IS NULL AND reason IN ('created', 'claimed', 'started', 'question',
            'succeeded', 'subtasks_rested', 'role_stopped')))
);
-- The queues: one for each role and priority. Finished tasks are not in it.
CREATE INDEX tasks_claim ON tasks (role, priority, claim_at, id) WHERE claim_at IS NOT NULL;
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_newest ON tasks (created_at DESC, id);
CREATE INDEX tasks_parent ON tasks (parent) WHERE parent IS NOT NULL;
CREATE INDEX tasks_session ON tasks (session) WHERE session IS NOT NULL;
CREATE INDEX tasks_workflow ON tasks (workflow) WHERE workflow IS NOT NULL;
-- What is not at rest is listed by its state, without reading what is. Not partial: neither planner
-- sees that a state which is asked for is one of those that an index leaves out.
CREATE INDEX tasks_state ON tasks (state, created_at DESC, id);

CREATE TABLE specs (
    task TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    prompt TEXT NOT NULL,
    repository TEXT,
    base TEXT,
    branch TEXT,
    agent TEXT,
    model TEXT,
    provider TEXT,
    continues TEXT,
    limits TEXT NOT NULL,
    environment TEXT NOT NULL,
    created_by TEXT NOT NULL,
    max_cost BIGINT CHECK (max_cost >= 0),
    max_tokens BIGINT CHECK (max_tokens >= 0),
    uncounted TEXT NOT NULL CHECK (uncounted IN ('refuse', 'allow')),
    revision BIGINT NOT NULL CHECK (revision > 0)
);

CREATE TABLE ledgers (
    root TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    cost BIGINT NOT NULL CHECK (cost >= 0),
    tokens BIGINT NOT NULL CHECK (tokens >= 0),
    reserved_cost BIGINT NOT NULL CHECK (reserved_cost >= 0),
    reserved_tokens BIGINT NOT NULL CHECK (reserved_tokens >= 0),
    drift BIGINT NOT NULL CHECK (drift >= 0),
    revision BIGINT NOT NULL CHECK (revision > 0)
);

CREATE TABLE attempts (
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number BIGINT NOT NULL CHECK (number > 0),
    epoch BIGINT NOT NULL CHECK (epoch >= 0),
    phase TEXT NOT NULL,
    publish_due BIGINT,
    outcome TEXT CHECK (outcome IN ('succeeded', 'question', 'failed', 'timed_out', 'cancelled',
        'budget_exceeded', 'lost')),
    proof TEXT CHECK (proof IN ('observed', 'lease_expired', 'not_ours')),
    publish TEXT NOT NULL,
    push_commit TEXT,
    push_expected TEXT,
    lease_end BIGINT NOT NULL,
    claimed_at BIGINT NOT NULL,
    prepared_at BIGINT NOT NULL,
    started_at BIGINT,
    deadline BIGINT,
    held_since BIGINT,
    session TEXT NOT NULL REFERENCES sessions (id),
    worker TEXT,
    runner TEXT,
    sandbox TEXT,
    token_hash TEXT,
    cause TEXT,
    input_tokens BIGINT NOT NULL CHECK (input_tokens >= 0),
    output_tokens BIGINT NOT NULL CHECK (output_tokens >= 0),
    cache_read_tokens BIGINT NOT NULL CHECK (cache_read_tokens >= 0),
    cache_write_tokens BIGINT NOT NULL CHECK (cache_write_tokens >= 0),
    cost BIGINT CHECK (cost >= 0),
    transcript_length BIGINT NOT NULL CHECK (transcript_length >= 0),
    kept_ref TEXT,
    end_step TEXT CHECK (end_step IN ('freeze', 'kill', 'save_transcript', 'save_tree', 'destroy',
        'settle', 'tell', 'done')),
    end_storage TEXT CHECK (end_storage IN ('outlives', 'dies_with_processes')),
    end_transcript_kept BIGINT,
    end_tree_kept BIGINT,
    due_at BIGINT,
    live TEXT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (task, number),
    CONSTRAINT attempt_phase CHECK (
        (live IS NULL OR live = task)
        AND (live IS NOT NULL) = (phase IN ('CLAIMED', 'RUNNING', 'PUBLISHING'))
        AND phase IN ('CLAIMED', 'RUNNING', 'PUBLISHING', 'ENDING', 'ENDED')
        AND (publish_due IS NOT NULL) = (phase = 'PUBLISHING')
        AND (outcome IS NOT NULL) = (phase IN ('ENDING', 'ENDED'))
        AND (proof IS NOT NULL) = (phase = 'ENDED')),
    CONSTRAINT attempt_publish CHECK (
        publish IN ('none', 'open', 'pushed', 'not_pushed')
        AND (push_commit IS NULL) = (publish = 'none')
        AND (push_expected IS NULL OR push_commit IS NOT NULL))
);
CREATE UNIQUE INDEX attempts_one_live ON attempts (live) WHERE live IS NOT NULL;
CREATE INDEX attempts_due ON attempts (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX attempts_session ON attempts (session) WHERE phase <> 'ENDED';

CREATE TABLE dependencies (
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    depends_on TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (task, depends_on),
    CONSTRAINT no_self CHECK (task <> depends_on)
);
CREATE INDEX dependencies_of ON dependencies (depends_on);

CREATE TABLE questions (
    id TEXT NOT NULL PRIMARY KEY,
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    text TEXT NOT NULL,
    options TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    answer TEXT,
    answered_by TEXT,
    answered_at BIGINT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT question_answer CHECK ((answer IS NULL) = (answered_at IS NULL))
);
CREATE INDEX questions_task ON questions (task);

CREATE TABLE remarks (
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    attempt BIGINT,
    speaker TEXT NOT NULL CHECK (speaker IN ('person', 'agent', 'belay')),
    text TEXT NOT NULL,
    said_at BIGINT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (task, number)
);

-- The end that counts is the lease's as long as there is one.
CREATE VIEW attempts_with_lease AS
SELECT a.task, a.number, a.epoch, a.phase, a.publish_due, a.outcome, a.proof, a.publish,
    a.push_commit, a.push_expected, coalesce(l.until, a.lease_end) AS lease_end, a.claimed_at,
    a.prepared_at, a.started_at, a.deadline, a.held_since, a.session, a.worker, a.runner, a.sandbox,
    a.token_hash, a.cause, a.input_tokens, a.output_tokens, a.cache_read_tokens,
    a.cache_write_tokens, a.cost, a.transcript_length, a.kept_ref, a.end_step, a.end_storage,
    a.end_transcript_kept, a.end_tree_kept, a.due_at, a.live, a.revision
FROM attempts a
LEFT JOIN leases l ON l.kind = 'attempt' AND l.subject = a.task AND l.number = a.number;
