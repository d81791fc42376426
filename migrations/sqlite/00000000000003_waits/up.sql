-- Ops that wait. A row is here exactly while the op's row says "waiting"; whoever changes it holds the workflow locked.
CREATE TABLE waits (
    op        INTEGER PRIMARY KEY,
    workflow  INTEGER NOT NULL,
    fence     INTEGER NOT NULL,  -- of the attempt whose end began the wait
    reason    TEXT    NOT NULL CHECK (reason IN ('timer', 'verdict')),
    since_us  INTEGER NOT NULL,
    due_at_us INTEGER            -- null: never by itself
) STRICT;
CREATE INDEX waits_by_due ON waits (due_at_us, op) WHERE due_at_us IS NOT NULL;
CREATE INDEX waits_by_reason ON waits (reason, op);

-- How the last wait of an op ended, for the attempts behind it.
CREATE TABLE wakes (
    op          INTEGER PRIMARY KEY,
    workflow    INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    since_us    INTEGER NOT NULL,
    due_at_us   INTEGER,
    woken_at_us INTEGER NOT NULL
) STRICT;

-- Set before a handler begins whose effect must not be repeated: from then on nobody else knows what its attempt does.
ALTER TABLE leases ADD COLUMN dispatched_at_us INTEGER;

-- A program that does not know of waits would leave them behind when it cancels.
UPDATE schema_info SET version = 3, writable_since = 3;
