-- What a run needs to be repeated, explained and proven: the command and the way its work is
-- published, what is known of an attempt's end, what was seen of its output.

ALTER TABLE specs ADD COLUMN command TEXT NOT NULL DEFAULT '[]';
ALTER TABLE specs ADD COLUMN publishing TEXT NOT NULL DEFAULT 'branch'
    CHECK (publishing IN ('none', 'branch'));
ALTER TABLE specs ADD COLUMN uncommitted TEXT NOT NULL DEFAULT 'refuse'
    CHECK (uncommitted IN ('refuse', 'include'));
ALTER TABLE specs ADD COLUMN image TEXT;
ALTER TABLE specs ADD COLUMN keep_alive BIGINT NOT NULL DEFAULT 0 CHECK (keep_alive IN (0, 1));

ALTER TABLE attempts ADD COLUMN ending_at BIGINT;
ALTER TABLE attempts ADD COLUMN proven_at BIGINT;
ALTER TABLE attempts ADD COLUMN processes BIGINT NOT NULL DEFAULT 0 CHECK (processes >= 0);
ALTER TABLE attempts ADD COLUMN transcript_hash TEXT;
ALTER TABLE attempts ADD COLUMN transcript_missing TEXT NOT NULL DEFAULT '[]';
ALTER TABLE attempts ADD COLUMN kept_commit TEXT;
ALTER TABLE attempts ADD COLUMN message TEXT;
ALTER TABLE attempts ADD COLUMN fired TEXT;

ALTER TABLE sandboxes ADD COLUMN stream TEXT;

DROP VIEW attempts_with_lease;
CREATE VIEW attempts_with_lease AS
SELECT a.task, a.number, a.epoch, a.phase, a.publish_due, a.outcome, a.proof, a.publish,
    a.push_commit, a.push_expected, coalesce(l.until, a.lease_end) AS lease_end, a.claimed_at,
    a.prepared_at, a.started_at, a.deadline, a.held_since, a.session, a.worker, a.runner, a.sandbox,
    a.token_hash, a.cause, a.input_tokens, a.output_tokens, a.cache_read_tokens,
    a.cache_write_tokens, a.cost, a.transcript_length, a.kept_ref, a.end_step, a.end_storage,
    a.end_transcript_kept, a.end_tree_kept, a.due_at, a.ending_at, a.proven_at, a.processes,
    a.transcript_hash, a.transcript_missing, a.kept_commit, a.message, a.fired, a.live, a.revision
FROM attempts a
LEFT JOIN leases l ON l.kind = 'attempt' AND l.subject = a.task AND l.number = a.number;
