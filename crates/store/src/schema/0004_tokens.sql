-- Who may ask: tokens, of which only the hash is kept. No two that open anything have one name.

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin', 'runner')),
    hash TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT,
    expires_at BIGINT,
    revoked_at BIGINT,
    live TEXT,
    revision BIGINT NOT NULL CHECK (revision > 0),
    CONSTRAINT token_live CHECK (
        (live IS NULL OR live = name)
        AND (live IS NULL) = (revoked_at IS NOT NULL))
);
CREATE UNIQUE INDEX tokens_one_name ON tokens (live) WHERE live IS NOT NULL;
