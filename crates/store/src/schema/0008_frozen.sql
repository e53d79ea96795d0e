-- Whether the sandbox of an attempt may be frozen, in which case the end of its lease proves nothing.

ALTER TABLE attempts ADD COLUMN frozen TEXT NOT NULL DEFAULT 'no'
    CHECK (frozen IN ('no', 'before', 'now'));

DROP VIEW attempts_with_lease;
CREATE VIEW attempts_with_lease AS
SELECT a.task, a.number, a.epoch, a.phase, a.publish_due, a.outcome, a.proof, a.publish,
    a.push_commit, a.push_expected, coalesce(l.until, a.lease_end) AS lease_end, a.claimed_at,
    a.prepared_at, a.started_at, a.deadline, a.held_since, a.frozen, a.session, a.worker, a.runner,
    a.sandbox, a.token_hash, a.cause, a.input_tokens, a.output_tokens, a.cache_read_tokens,
    a.cache_write_tokens, a.cost, a.transcript_length, a.kept_ref, a.end_step, a.end_storage,
    a.end_transcript_kept, a.end_tree_kept, a.due_at, a.ending_at, a.proven_at, a.processes,
    a.transcript_hash, a.transcript_missing, a.kept_commit, a.message, a.fired, a.live, a.revision
FROM attempts a
LEFT JOIN leases l ON l.kind = 'attempt' AND l.subject = a.task AND l.number = a.number;
