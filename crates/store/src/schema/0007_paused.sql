-- Webhooks that are told nothing for a while.

ALTER TABLE webhooks ADD COLUMN paused_at BIGINT;
