-- Messages that wait to be delivered, and those that came in. Instants are microseconds since the Unix epoch.
--
-- The outbox keeps Debezium's names, so that change data capture can take the relay's place. There is one writer at a
-- time, so seq grows in the order of commits. aggregate stands for type and id of an aggregate: where two share it,
-- they wait for each other.
--
-- next_at is above 0 only where a message could not be delivered: when it is tried next, or, of a parked one, the end
-- of time. Until then all of its aggregate wait.
CREATE TABLE twicesafe_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    aggregatetype TEXT NOT NULL,
    aggregateid TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    source TEXT NOT NULL,
    subject TEXT,
    content_type TEXT NOT NULL,
    headers TEXT,
    created_at INTEGER NOT NULL,
    aggregate INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    delivered_at INTEGER,
    CONSTRAINT twicesafe_message_has_an_id CHECK (id <> ''),
    CONSTRAINT twicesafe_shard_is_one_of_64 CHECK (shard BETWEEN 0 AND 63),
    CONSTRAINT twicesafe_way_is_known CHECK (
        state = 'pending' OR state = 'parked' OR state = 'skipped' OR state = 'delivered' OR state = 'discarded'
    )
);

CREATE INDEX twicesafe_outbox_pending ON twicesafe_outbox (seq) WHERE state = 'pending';
CREATE INDEX twicesafe_outbox_stuck ON twicesafe_outbox (next_at, aggregate) WHERE next_at > 0;

-- Which relay delivers which part of the messages, and until when.
CREATE TABLE twicesafe_relay_shards (
    shard INTEGER NOT NULL PRIMARY KEY,
    owner BLOB NOT NULL DEFAULT x'',
    epoch INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0
);

INSERT INTO twicesafe_relay_shards (shard)
WITH RECURSIVE shards (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 63)
SELECT shard FROM shards;

-- Messages that a consumer has handled. digest is of consumer, source and id together.
CREATE TABLE twicesafe_inbox (
    digest BLOB NOT NULL PRIMARY KEY,
    consumer TEXT NOT NULL,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL
);

CREATE INDEX twicesafe_inbox_at ON twicesafe_inbox (at);

-- How far a consumer has come with each aggregate. digest is of consumer, source and aggregate together.
CREATE TABLE twicesafe_inbox_cursor (
    digest BLOB NOT NULL PRIMARY KEY,
    consumer TEXT NOT NULL,
    source TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    position INTEGER NOT NULL
);
