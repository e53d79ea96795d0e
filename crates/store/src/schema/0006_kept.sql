-- Sandboxes that are kept for the next attempt of their session: whoever goes on in one asks which
-- attempts it had before.
CREATE INDEX attempts_sandbox ON attempts (sandbox) WHERE sandbox IS NOT NULL;
