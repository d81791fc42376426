-- Instants are *_us: microseconds since 1970-01-01 UTC. JSON is text, stored as given. Hot tables (ready, delayed, leases)
-- are narrow and carry no foreign keys; ops is wide and cold, and no index on it holds a column that the hot path changes.
-- Documents are the last columns of a row: what stands before them is read without following their overflow pages.

-- One row: the schema's own version, and the oldest program that may write to it.
CREATE TABLE schema_info (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    version        INTEGER NOT NULL,
    writable_since INTEGER NOT NULL  -- a program must know at least this version to write
) STRICT;
INSERT INTO schema_info (id, version, writable_since) VALUES (1, 1, 1);

-- The row of a workflow is the mutex of its graph. "open" counts ready and running ops together.
CREATE TABLE workflows (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT    NOT NULL UNIQUE,
    request          TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    digest           TEXT,
    site             TEXT    NOT NULL,
    subject          TEXT,
    status           TEXT    NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'canceled')),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    pending          INTEGER NOT NULL DEFAULT 0,
    blocked          INTEGER NOT NULL DEFAULT 0,
    open             INTEGER NOT NULL DEFAULT 0,
    waiting          INTEGER NOT NULL DEFAULT 0,
    succeeded        INTEGER NOT NULL DEFAULT 0,
    failed           INTEGER NOT NULL DEFAULT 0,
    canceled         INTEGER NOT NULL DEFAULT 0,
    created_at_us    INTEGER NOT NULL,
    updated_at_us    INTEGER NOT NULL,
    finished_at_us   INTEGER,
    input            TEXT    NOT NULL,
    metadata         TEXT    NOT NULL
) STRICT;
CREATE INDEX workflows_by_update ON workflows (updated_at_us, seq);
CREATE INDEX workflows_by_name ON workflows (name, seq);
CREATE INDEX workflows_by_subject ON workflows (subject) WHERE subject IS NOT NULL;

-- Where ops wait. A gate is the pair (site, queue) that limits count on; its row is what a limit is serialised on.
CREATE TABLE lanes (
    key   INTEGER PRIMARY KEY,
    gate  INTEGER NOT NULL,
    site  TEXT    NOT NULL,
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    agent TEXT
) STRICT;
CREATE TABLE gates (
    key           INTEGER PRIMARY KEY,
    site          TEXT NOT NULL,
    queue         TEXT NOT NULL,
    micro_tokens  INTEGER,
    counted_at_us INTEGER
) STRICT;

-- site '' is every site without a policy of its own.
CREATE TABLE policies (
    queue           TEXT NOT NULL,
    site            TEXT NOT NULL,
    max_in_flight   INTEGER CHECK (max_in_flight >= 0),
    rate_per_second REAL CHECK (rate_per_second > 0),
    rate_burst      INTEGER CHECK (rate_burst >= 1),
    PRIMARY KEY (queue, site)
) STRICT, WITHOUT ROWID;

CREATE TABLE ops (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow       INTEGER NOT NULL REFERENCES workflows (seq),
    id             TEXT    NOT NULL,
    parent         INTEGER,
    lane           INTEGER NOT NULL,
    priority       INTEGER NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('pending', 'blocked', 'open', 'waiting', 'succeeded', 'failed', 'canceled')),
    unmet          INTEGER NOT NULL,
    broken         INTEGER NOT NULL,
    fence          INTEGER NOT NULL DEFAULT 0,
    failures       INTEGER NOT NULL DEFAULT 0,
    losses         INTEGER NOT NULL DEFAULT 0,
    created_at_us  INTEGER NOT NULL,
    finished_at_us INTEGER,
    retry          TEXT    NOT NULL,
    dedup_key      TEXT,
    time_limit_us  INTEGER,
    spec           TEXT    NOT NULL,
    input          TEXT    NOT NULL,
    metadata       TEXT    NOT NULL,
    UNIQUE (workflow, id)
) STRICT;
-- Keys are reserved before their rows are inserted, by raising AUTOINCREMENT's own counter.
INSERT INTO sqlite_sequence (name, seq) VALUES ('ops', 0);
-- Pages of a workflow's ops; the key follows the workflow in the index by itself.
CREATE INDEX ops_by_workflow ON ops (workflow);
CREATE UNIQUE INDEX ops_by_dedup_key ON ops (workflow, dedup_key) WHERE dedup_key IS NOT NULL;

CREATE TABLE op_dependencies (
    child    INTEGER NOT NULL,
    parent   INTEGER NOT NULL,
    required INTEGER NOT NULL CHECK (required IN (0, 1)),
    PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX op_dependencies_by_parent ON op_dependencies (parent, child, required);

-- Only what may be claimed now.
CREATE TABLE ready (
    op        INTEGER PRIMARY KEY,
    lane      INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    due_at_us INTEGER NOT NULL,
    fence     INTEGER NOT NULL,
    failures  INTEGER NOT NULL
) STRICT;
CREATE INDEX ready_by_lane ON ready (lane, priority DESC, due_at_us, op);

-- The same for later.
CREATE TABLE delayed (
    op        INTEGER PRIMARY KEY,
    lane      INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    due_at_us INTEGER NOT NULL,
    fence     INTEGER NOT NULL,
    failures  INTEGER NOT NULL
) STRICT;
CREATE INDEX delayed_by_due ON delayed (due_at_us, op);

-- An op is running exactly when its lease is here. The pair (op, token) names one lease.
CREATE TABLE leases (
    op             INTEGER PRIMARY KEY,
    workflow       INTEGER NOT NULL,
    gate           INTEGER NOT NULL,
    token          TEXT    NOT NULL,
    fence          INTEGER NOT NULL,
    worker         TEXT    NOT NULL,
    acquired_at_us INTEGER NOT NULL,
    expires_at_us  INTEGER NOT NULL
) STRICT;
CREATE INDEX leases_by_expiry ON leases (expires_at_us, op);
CREATE INDEX leases_by_gate ON leases (gate);

-- The append-only ledger, with results.
CREATE TABLE attempts (
    op             INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    workflow       INTEGER NOT NULL,
    token          TEXT    NOT NULL,
    worker         TEXT    NOT NULL,
    acquired_at_us INTEGER NOT NULL,
    ended_at_us    INTEGER NOT NULL,
    outcome        TEXT    NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'retried', 'suspended', 'canceled', 'released', 'abandoned')),
    result         TEXT,
    error_code     TEXT,
    error_message  TEXT,
    error_details  TEXT,
    PRIMARY KEY (op, fence)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow     INTEGER NOT NULL,
    op           INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    kind         TEXT    NOT NULL CHECK (kind IN ('text', 'image', 'audio', 'binary')),
    content_type TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    sha256       TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    at_us        INTEGER NOT NULL,
    content      BLOB    NOT NULL,
    UNIQUE (op, name)
) STRICT;
CREATE INDEX artifacts_by_workflow ON artifacts (workflow, op, name);

CREATE TABLE records (
    workflow   INTEGER NOT NULL,
    collection TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    op         INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    at_us      INTEGER NOT NULL,
    PRIMARY KEY (workflow, collection, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX records_by_collection ON records (collection, key);

-- AUTOINCREMENT: numbers are in commit order and never reused.
CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us    INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    workflow INTEGER NOT NULL,
    op       INTEGER,
    fence    INTEGER,
    actor    TEXT,
    detail   TEXT
) STRICT;
CREATE INDEX events_by_workflow ON events (workflow, seq);

-- Operators' calls and their first answers.
CREATE TABLE acts (
    request  TEXT    NOT NULL PRIMARY KEY,
    question TEXT    NOT NULL,
    answer   TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    at_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people in any SQL shell: statuses spelled out, instants as text.
CREATE VIEW ops_now AS
SELECT w.id AS workflow, o.id AS op, l.queue, l.site, l.kind,
       CASE WHEN o.status <> 'open' THEN o.status WHEN le.op IS NOT NULL THEN 'running' ELSE 'ready' END AS status,
       o.fence AS attempts, o.failures, o.losses, le.worker,
       strftime('%Y-%m-%dT%H:%M:%fZ', le.expires_at_us / 1e6, 'unixepoch') AS lease_expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.finished_at_us / 1e6, 'unixepoch') AS finished_at
  FROM ops o
  JOIN workflows w ON w.seq = o.workflow
  JOIN lanes l ON l.key = o.lane
  LEFT JOIN leases le ON le.op = o.seq;
