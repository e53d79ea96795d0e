-- Whoever removes a task asks which attempts its sessions had, the ended ones above all.
DROP INDEX attempts_session;
CREATE INDEX attempts_session ON attempts (session);
