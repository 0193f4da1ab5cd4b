-- Messages that wait to be delivered, and those that came in. Instants are microseconds since the Unix epoch.
--
-- The outbox keeps Debezium's names, so that change data capture can take the relay's place. seq is drawn while the
-- aggregate's turn is held, and so grows in the order of commits within each aggregate. aggregate stands for type and
-- id of an aggregate: where two share it, they wait for each other.
--
-- next_at is above 0 only where a message could not be delivered: when it is tried next, or, of a parked one, the end
-- of time. Until then all of its aggregate wait.
CREATE TABLE IF NOT EXISTS twicesafe_outbox (
    seq BIGINT NOT NULL AUTO_INCREMENT,
    id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregatetype VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregateid VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload LONGBLOB NOT NULL,
    source VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    subject VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    content_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at BIGINT NOT NULL,
    aggregate BIGINT NOT NULL,
    shard SMALLINT NOT NULL,
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'pending',
    attempts INT NOT NULL DEFAULT 0,
    next_at BIGINT NOT NULL DEFAULT 0,
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    delivered_at BIGINT,
    PRIMARY KEY (seq),
    UNIQUE KEY twicesafe_outbox_id (id),
    KEY twicesafe_outbox_pending (state, seq),
    KEY twicesafe_outbox_stuck (next_at, aggregate),
    CONSTRAINT twicesafe_message_has_an_id CHECK (id <> ''),
    CONSTRAINT twicesafe_shard_is_one_of_64 CHECK (shard BETWEEN 0 AND 63),
    CONSTRAINT twicesafe_way_is_known CHECK (state IN ('pending', 'parked', 'skipped', 'delivered', 'discarded'))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Rows to be locked until a commit: one for some thousandth of all aggregates, so that none has to be made or deleted.
CREATE TABLE IF NOT EXISTS twicesafe_outbox_turns (
    turn SMALLINT NOT NULL,
    PRIMARY KEY (turn)
) ENGINE = InnoDB;

INSERT IGNORE INTO twicesafe_outbox_turns (turn)
WITH RECURSIVE turns (turn) AS (SELECT 0 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 511)
SELECT turn + 512 * eighth FROM turns, (
    SELECT 0 AS eighth UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3
    UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
) AS eighths;

-- Which relay delivers which part of the messages, and until when.
CREATE TABLE IF NOT EXISTS twicesafe_relay_shards (
    shard SMALLINT NOT NULL,
    owner VARBINARY(64) NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,
    lease_until BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (shard)
) ENGINE = InnoDB;

INSERT IGNORE INTO twicesafe_relay_shards (shard)
SELECT turn FROM twicesafe_outbox_turns WHERE turn < 64;

-- Messages that a consumer has handled. digest is of consumer, source and id together.
CREATE TABLE IF NOT EXISTS twicesafe_inbox (
    digest BINARY(32) NOT NULL,
    consumer VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    source VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (digest),
    KEY twicesafe_inbox_at (at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How far a consumer has come with each aggregate. digest is of consumer, source and aggregate together.
CREATE TABLE IF NOT EXISTS twicesafe_inbox_cursor (
    digest BINARY(32) NOT NULL,
    consumer VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    source VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregate VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (digest)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
