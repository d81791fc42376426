-- One row: the latest time that the store has shown, and since when its clock is known to be behind that.
CREATE TABLE clock (
    id               INTEGER PRIMARY KEY CHECK (id = 1),
    mark_us          BIGINT,  -- null before the first heartbeat or pass of maintenance
    anomaly_since_us BIGINT
);
INSERT INTO clock (id) VALUES (1);

-- One row: who keeps the store up. Each leader has an epoch of its own, and its writes carry it.
CREATE TABLE maintenance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    epoch      BIGINT NOT NULL,
    token      TEXT   COLLATE "C" NOT NULL,
    leader     TEXT   NOT NULL,
    ends_at_us BIGINT NOT NULL
);
INSERT INTO maintenance (id, epoch, token, leader, ends_at_us) VALUES (1, 0, '', 'nobody', -62135596800000000);

-- Some events are about the whole store.
ALTER TABLE events ALTER COLUMN workflow DROP NOT NULL;

UPDATE schema_info SET version = 2;
