-- Instants are *_us: microseconds since 1970-01-01 UTC. JSON is text, stored as given. Hot tables (ready, delayed, leases)
-- are narrow and carry no foreign keys; ops is wide and cold, and no index on it holds a column that the hot path changes.
-- Numbers and flags are 64 bits wide, as the rows that programs read; ids and names are compared byte by byte on every
-- database: COLLATE "C".

-- The one clock of the store: the database's, read at the call and not at the transaction's start. Every statement asks
-- this function, so that tests can put a clock of their own in its place.
CREATE FUNCTION now_us() RETURNS BIGINT
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- One row: the schema's own version, and the oldest program that may write to it.
CREATE TABLE schema_info (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    version        BIGINT  NOT NULL,
    writable_since BIGINT  NOT NULL  -- a program must know at least this version to write
);
INSERT INTO schema_info (id, version, writable_since) VALUES (1, 1, 1);

-- Numbers are taken from the sequences before the rows exist; a rolled back transaction leaves a gap.
CREATE SEQUENCE workflows_seq AS BIGINT;
CREATE SEQUENCE ops_seq AS BIGINT;
CREATE SEQUENCE events_seq AS BIGINT;

-- The row of a workflow is the mutex of its graph. "open" counts ready and running ops together.
-- Half of each page is left free: the row is updated by every commit that touches its graph.
CREATE TABLE workflows (
    seq              BIGINT  PRIMARY KEY DEFAULT nextval('workflows_seq'),
    id               TEXT    COLLATE "C" NOT NULL UNIQUE,
    request          TEXT    COLLATE "C" NOT NULL,
    name             TEXT    COLLATE "C" NOT NULL,
    digest           TEXT    COLLATE "C",
    input            TEXT    NOT NULL,
    metadata         TEXT    NOT NULL,
    site             TEXT    COLLATE "C" NOT NULL,
    subject          TEXT    COLLATE "C",
    status           TEXT    COLLATE "C" NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'canceled')),
    cancel_requested BIGINT  NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    pending          BIGINT  NOT NULL DEFAULT 0,
    blocked          BIGINT  NOT NULL DEFAULT 0,
    open             BIGINT  NOT NULL DEFAULT 0,
    waiting          BIGINT  NOT NULL DEFAULT 0,
    succeeded        BIGINT  NOT NULL DEFAULT 0,
    failed           BIGINT  NOT NULL DEFAULT 0,
    canceled         BIGINT  NOT NULL DEFAULT 0,
    created_at_us    BIGINT  NOT NULL,
    updated_at_us    BIGINT  NOT NULL,
    finished_at_us   BIGINT
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
ALTER SEQUENCE workflows_seq OWNED BY workflows.seq;
CREATE INDEX workflows_by_update ON workflows (updated_at_us, seq);
CREATE INDEX workflows_by_name ON workflows (name, seq);
CREATE INDEX workflows_by_subject ON workflows (subject) WHERE subject IS NOT NULL;

-- Where ops wait. A gate is the pair (site, queue) that limits count on; its row is what a limit is serialised on.
CREATE TABLE lanes (
    key   BIGINT PRIMARY KEY,
    gate  BIGINT NOT NULL,
    site  TEXT   COLLATE "C" NOT NULL,
    queue TEXT   COLLATE "C" NOT NULL,
    kind  TEXT   COLLATE "C" NOT NULL,
    agent TEXT   COLLATE "C"
);
CREATE TABLE gates (
    key           BIGINT PRIMARY KEY,
    site          TEXT   COLLATE "C" NOT NULL,
    queue         TEXT   COLLATE "C" NOT NULL,
    micro_tokens  BIGINT,
    counted_at_us BIGINT
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- site '' is every site without a policy of its own.
CREATE TABLE policies (
    queue           TEXT   COLLATE "C" NOT NULL,
    site            TEXT   COLLATE "C" NOT NULL,
    max_in_flight   BIGINT CHECK (max_in_flight >= 0),
    rate_per_second DOUBLE PRECISION CHECK (rate_per_second > 0),
    rate_burst      BIGINT CHECK (rate_burst >= 1),
    PRIMARY KEY (queue, site)
);

-- An op's row is updated once or twice in its life; what those updates change is in no index, so they stay on its page.
CREATE TABLE ops (
    seq            BIGINT  PRIMARY KEY,
    workflow       BIGINT  NOT NULL REFERENCES workflows (seq),
    id             TEXT    COLLATE "C" NOT NULL,
    parent         BIGINT,
    lane           BIGINT  NOT NULL,
    priority       BIGINT  NOT NULL,
    input          TEXT    NOT NULL,
    metadata       TEXT    NOT NULL,
    retry          TEXT    NOT NULL,
    dedup_key      TEXT    COLLATE "C",
    time_limit_us  BIGINT,
    spec           TEXT    COLLATE "C" NOT NULL,
    status         TEXT    COLLATE "C" NOT NULL
                   CHECK (status IN ('pending', 'blocked', 'open', 'waiting', 'succeeded', 'failed', 'canceled')),
    unmet          BIGINT  NOT NULL,
    broken         BIGINT  NOT NULL,
    fence          BIGINT  NOT NULL DEFAULT 0,
    failures       BIGINT  NOT NULL DEFAULT 0,
    losses         BIGINT  NOT NULL DEFAULT 0,
    created_at_us  BIGINT  NOT NULL,
    finished_at_us BIGINT,
    UNIQUE (workflow, id)
) WITH (fillfactor = 50);
ALTER SEQUENCE ops_seq OWNED BY ops.seq;
CREATE UNIQUE INDEX ops_by_dedup_key ON ops (workflow, dedup_key) WHERE dedup_key IS NOT NULL;

CREATE TABLE op_dependencies (
    child    BIGINT  NOT NULL,
    parent   BIGINT  NOT NULL,
    required BIGINT  NOT NULL CHECK (required IN (0, 1)),
    PRIMARY KEY (child, parent)
);
CREATE INDEX op_dependencies_by_parent ON op_dependencies (parent, child) INCLUDE (required);

-- Only what may be claimed now. Rows are inserted and deleted, never updated; dead ones slow every claim until they are
-- vacuumed, so this happens early and without pauses.
CREATE TABLE ready (
    op        BIGINT  PRIMARY KEY,
    lane      BIGINT  NOT NULL,
    priority  BIGINT  NOT NULL,
    due_at_us BIGINT  NOT NULL,
    fence     BIGINT  NOT NULL,
    failures  BIGINT  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 2000);
CREATE INDEX ready_by_lane ON ready (lane, priority DESC, due_at_us, op);

-- The same for later.
CREATE TABLE delayed (
    op        BIGINT  PRIMARY KEY,
    lane      BIGINT  NOT NULL,
    priority  BIGINT  NOT NULL,
    due_at_us BIGINT  NOT NULL,
    fence     BIGINT  NOT NULL,
    failures  BIGINT  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 2000);
CREATE INDEX delayed_by_due ON delayed (due_at_us, op);

-- An op is running exactly when its lease is here. The pair (op, token) names one lease.
CREATE TABLE leases (
    op             BIGINT PRIMARY KEY,
    workflow       BIGINT NOT NULL,
    gate           BIGINT NOT NULL,
    token          TEXT   COLLATE "C" NOT NULL,
    fence          BIGINT NOT NULL,
    worker         TEXT   COLLATE "C" NOT NULL,
    acquired_at_us BIGINT NOT NULL,
    expires_at_us  BIGINT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 2000);
CREATE INDEX leases_by_expiry ON leases (expires_at_us, op);
CREATE INDEX leases_by_gate ON leases (gate);

-- The append-only ledger, with results.
CREATE TABLE attempts (
    op             BIGINT NOT NULL,
    fence          BIGINT NOT NULL,
    workflow       BIGINT NOT NULL,
    token          TEXT   COLLATE "C" NOT NULL,
    worker         TEXT   COLLATE "C" NOT NULL,
    acquired_at_us BIGINT NOT NULL,
    ended_at_us    BIGINT NOT NULL,
    outcome        TEXT   COLLATE "C" NOT NULL
                   CHECK (outcome IN ('succeeded', 'failed', 'retried', 'suspended', 'canceled', 'released', 'abandoned')),
    result         TEXT,
    error_code     TEXT,
    error_message  TEXT,
    error_details  TEXT,
    PRIMARY KEY (op, fence)
);

CREATE TABLE artifacts (
    seq          BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    workflow     BIGINT NOT NULL,
    op           BIGINT NOT NULL,
    name         TEXT   COLLATE "C" NOT NULL,
    kind         TEXT   COLLATE "C" NOT NULL CHECK (kind IN ('text', 'image', 'audio', 'binary')),
    content_type TEXT   NOT NULL,
    metadata     TEXT   NOT NULL,
    size         BIGINT NOT NULL,
    sha256       TEXT   COLLATE "C" NOT NULL,
    fence        BIGINT NOT NULL,
    at_us        BIGINT NOT NULL,
    content      BYTEA  NOT NULL,
    UNIQUE (op, name)
);
CREATE INDEX artifacts_by_workflow ON artifacts (workflow, op, name);

CREATE TABLE records (
    workflow   BIGINT NOT NULL,
    collection TEXT   COLLATE "C" NOT NULL,
    key        TEXT   COLLATE "C" NOT NULL,
    op         BIGINT NOT NULL,
    value      TEXT   NOT NULL,
    at_us      BIGINT NOT NULL,
    PRIMARY KEY (workflow, collection, key)
);
CREATE INDEX records_by_collection ON records (collection, key);

-- Numbers are taken before the commit: a later commit may carry a smaller one. Readers stop short of what an open
-- transaction could still precede.
CREATE TABLE events (
    seq      BIGINT PRIMARY KEY DEFAULT nextval('events_seq'),
    at_us    BIGINT NOT NULL,
    kind     TEXT   COLLATE "C" NOT NULL,
    workflow BIGINT NOT NULL,
    op       BIGINT,
    fence    BIGINT,
    actor    TEXT,
    detail   TEXT
);
ALTER SEQUENCE events_seq OWNED BY events.seq;
CREATE INDEX events_by_workflow ON events (workflow, seq);

-- Operators' calls and their first answers.
CREATE TABLE acts (
    request  TEXT   COLLATE "C" PRIMARY KEY,
    question TEXT   NOT NULL,
    answer   TEXT   NOT NULL,
    actor    TEXT   NOT NULL,
    at_us    BIGINT NOT NULL
);

-- For people in any SQL shell: statuses spelled out, instants as text.
CREATE VIEW ops_now AS
SELECT w.id AS workflow, o.id AS op, l.queue, l.site, l.kind,
       CASE WHEN o.status <> 'open' THEN o.status WHEN le.op IS NOT NULL THEN 'running' ELSE 'ready' END AS status,
       o.fence AS attempts, o.failures, o.losses, le.worker,
       to_char(to_timestamp(le.expires_at_us / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS lease_expires_at,
       to_char(to_timestamp(o.finished_at_us / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS finished_at
  FROM ops o
  JOIN workflows w ON w.seq = o.workflow
  JOIN lanes l ON l.key = o.lane
  LEFT JOIN leases le ON le.op = o.seq;
