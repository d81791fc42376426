-- One row: the latest time that the store has shown, and since when its clock is known to be behind that.
CREATE TABLE clock (
    id               INTEGER PRIMARY KEY CHECK (id = 1),
    mark_us          INTEGER,  -- null before the first heartbeat or pass of maintenance
    anomaly_since_us INTEGER
) STRICT;
INSERT INTO clock (id) VALUES (1);

-- One row: who keeps the store up. Each leader has an epoch of its own, and its writes carry it.
CREATE TABLE maintenance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    epoch      INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    leader     TEXT    NOT NULL,
    ends_at_us INTEGER NOT NULL
) STRICT;
INSERT INTO maintenance (id, epoch, token, leader, ends_at_us) VALUES (1, 0, '', 'nobody', -62135596800000000);

-- Some events are about the whole store. SQLite drops a NOT NULL only by building the table anew; the counter of
-- AUTOINCREMENT follows the table's name.
CREATE TABLE events_of_all (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us    INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    workflow INTEGER,
    op       INTEGER,
    fence    INTEGER,
    actor    TEXT,
    detail   TEXT
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'events_of_all', seq FROM sqlite_sequence WHERE name = 'events';
INSERT INTO events_of_all (seq, at_us, kind, workflow, op, fence, actor, detail)
SELECT seq, at_us, kind, workflow, op, fence, actor, detail FROM events;
DROP TABLE events;
ALTER TABLE events_of_all RENAME TO events;
CREATE INDEX events_by_workflow ON events (workflow, seq);

UPDATE schema_info SET version = 2;
