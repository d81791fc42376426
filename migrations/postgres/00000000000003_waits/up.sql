-- Ops that wait. A row is here exactly while the op's row says "waiting"; whoever changes it holds the workflow locked.
CREATE TABLE waits (
    op        BIGINT PRIMARY KEY,
    workflow  BIGINT NOT NULL,
    fence     BIGINT NOT NULL,  -- of the attempt whose end began the wait
    reason    TEXT   COLLATE "C" NOT NULL CHECK (reason IN ('timer', 'verdict')),
    since_us  BIGINT NOT NULL,
    due_at_us BIGINT            -- null: never by itself
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 2000);
CREATE INDEX waits_by_due ON waits (due_at_us, op) WHERE due_at_us IS NOT NULL;
CREATE INDEX waits_by_reason ON waits (reason, op);

-- How the last wait of an op ended, for the attempts behind it.
CREATE TABLE wakes (
    op          BIGINT PRIMARY KEY,
    workflow    BIGINT NOT NULL,
    fence       BIGINT NOT NULL,
    reason      TEXT   COLLATE "C" NOT NULL,
    since_us    BIGINT NOT NULL,
    due_at_us   BIGINT,
    woken_at_us BIGINT NOT NULL
);

-- Set before a handler begins whose effect must not be repeated: from then on nobody else knows what its attempt does.
ALTER TABLE leases ADD COLUMN dispatched_at_us BIGINT;

-- A program that does not know of waits would leave them behind when it cancels.
UPDATE schema_info SET version = 3, writable_since = 3;
