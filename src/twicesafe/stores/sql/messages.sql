-- The statements of outbox, relay and inbox, each once; see statements.sql for how they are written.
--
-- They run on whatever connection the caller has, so {now} on SQLite is none of the store's functions.

-- --- the outbox: in the caller's transaction ------------------------------------------------------------------------

-- name: add [postgresql]
-- The aggregate's lock first, then the sequence: seq's default is drawn for a row, and that row is what the lock
-- answers. Whoever gets the lock sees its predecessor committed, so seq grows in the order of commits within an
-- aggregate.
INSERT INTO twicesafe_outbox (
    id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers, created_at, aggregate, shard
)
SELECT
    CAST(:id AS text), CAST(:aggregatetype AS text), CAST(:aggregateid AS text), CAST(:type AS text),
    CAST(:payload AS bytea), CAST(:source AS text), CAST(:subject AS text), CAST(:content_type AS text),
    CAST(:headers AS text), {now}, CAST(:aggregate AS bigint), CAST(:shard AS smallint)
FROM pg_advisory_xact_lock(CAST(:aggregate AS bigint))
ON CONFLICT (id) DO NOTHING
RETURNING seq;

-- name: add_new [postgresql]
-- Without the look whether the id is there, a sixth of the server's time, and without a row to be read.
INSERT INTO twicesafe_outbox (
    id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers, created_at, aggregate, shard
)
SELECT
    CAST(:id AS text), CAST(:aggregatetype AS text), CAST(:aggregateid AS text), CAST(:type AS text),
    CAST(:payload AS bytea), CAST(:source AS text), CAST(:subject AS text), CAST(:content_type AS text),
    CAST(:headers AS text), {now}, CAST(:aggregate AS bigint), CAST(:shard AS smallint)
FROM pg_advisory_xact_lock(CAST(:aggregate AS bigint));

-- name: add [sqlite]
INSERT INTO twicesafe_outbox (
    id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers, created_at, aggregate, shard
) VALUES (
    :id, :aggregatetype, :aggregateid, :type, :payload, :source, :subject, :content_type, :headers, {now}, :aggregate,
    :shard
)
ON CONFLICT (id) DO NOTHING
RETURNING seq;

-- name: add [mysql]
-- The aggregate's turn first, then the sequence: a number is drawn for a row that has been read, and so locked.
INSERT INTO twicesafe_outbox (
    id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers, created_at, aggregate, shard
)
SELECT
    :id, :aggregatetype, :aggregateid, :type, :payload, :source, :subject, :content_type, :headers, {now}, :aggregate,
    :shard
FROM twicesafe_outbox_turns WHERE turn = :turn FOR UPDATE;

-- --- the inbox: in the caller's transaction -------------------------------------------------------------------------

-- name: handle
-- Waits for a rival that handles the same message, until it has committed or rolled back.
INSERT INTO twicesafe_inbox (digest, consumer, source, id, at) VALUES (:digest, :consumer, :source, :id, {now})
ON CONFLICT (digest) DO NOTHING
RETURNING 1;

-- name: handle [mysql]
INSERT INTO twicesafe_inbox (digest, consumer, source, id, at) VALUES (:digest, :consumer, :source, :id, {now});

-- name: advance_cursor
INSERT INTO twicesafe_inbox_cursor (digest, consumer, source, aggregate, position)
VALUES (:digest, :consumer, :source, :aggregate, :position)
ON CONFLICT (digest) DO UPDATE SET position = excluded.position
WHERE twicesafe_inbox_cursor.position <= excluded.position
RETURNING 1;

-- name: advance_cursor [mysql]
-- It is inserted or, where it is there, locked; with CLIENT.FOUND_ROWS the counts of both are the same.
INSERT INTO twicesafe_inbox_cursor (digest, consumer, source, aggregate, position)
VALUES (:digest, :consumer, :source, :aggregate, :position)
ON DUPLICATE KEY UPDATE position = GREATEST(position, :position);

-- name: cursor [mysql]
-- Its own transaction's version, whatever the snapshot of the caller's.
SELECT position FROM twicesafe_inbox_cursor WHERE digest = :digest FOR UPDATE;

-- name: forget
DELETE FROM twicesafe_inbox WHERE digest = :digest
{changed};

-- name: purge_inbox
DELETE FROM twicesafe_inbox
WHERE digest IN (SELECT digest FROM twicesafe_inbox WHERE at <= {now} - :keep_us ORDER BY at LIMIT :limit)
{changed};

-- name: ended_inbox [mysql]
SELECT digest FROM twicesafe_inbox WHERE at <= {now} - :keep_us ORDER BY at LIMIT :limit;

-- name: purge_inbox [mysql]
-- By the primary key, so that no gap is locked that a new message has to go to.
DELETE twicesafe_inbox FROM JSON_TABLE(:digests, '$[*]' COLUMNS (digits CHAR(64) PATH '$')) AS ended
STRAIGHT_JOIN twicesafe_inbox FORCE INDEX (PRIMARY) ON twicesafe_inbox.digest = UNHEX(ended.digits);

-- --- the relay: shards ----------------------------------------------------------------------------------------------

-- name: shards
-- The door among them, once a relay has stood there.
SELECT shard, owner, epoch, lease_until, {now} FROM twicesafe_relay_shards ORDER BY shard;

-- name: take_shards
-- Only what nobody holds. :shards is a number whose bits are the shards. An epoch only grows.
UPDATE twicesafe_relay_shards SET owner = :owner, epoch = :epoch, lease_until = {now} + :lease_us
WHERE lease_until <= {now} AND epoch < :epoch AND shard < :door AND (:shards >> shard) & 1 = 1
{changed};

-- name: take_shards [postgresql]
UPDATE twicesafe_relay_shards SET owner = :owner, epoch = :epoch, lease_until = {now} + :lease_us
WHERE lease_until <= {now} AND epoch < :epoch AND shard < :door AND (CAST(:shards AS bigint) >> shard) & 1 = 1
{changed};

-- name: renew_shards
-- Also a lease that is over, as long as nobody else has taken the shard.
UPDATE twicesafe_relay_shards SET lease_until = {now} + :lease_us WHERE owner = :owner AND shard < :door
{changed};

-- name: leave_shards
UPDATE twicesafe_relay_shards SET lease_until = 0
WHERE owner = :owner AND shard < :door AND (:shards >> shard) & 1 = 1
{changed};

-- name: leave_shards [postgresql]
UPDATE twicesafe_relay_shards SET lease_until = 0
WHERE owner = :owner AND shard < :door AND (CAST(:shards AS bigint) >> shard) & 1 = 1
{changed};

-- name: make_door
INSERT INTO twicesafe_relay_shards (shard) VALUES (:door) ON CONFLICT (shard) DO NOTHING
{changed};

-- name: make_door [mysql]
INSERT IGNORE INTO twicesafe_relay_shards (shard) VALUES (:door);

-- name: stand_at_door
-- Where nobody else stands. The row has no epoch, for nothing is delivered by it.
UPDATE twicesafe_relay_shards SET owner = :owner, lease_until = {now} + :lease_us
WHERE shard = :door AND (lease_until <= {now} OR owner = :owner)
{changed};

-- name: leave_door
UPDATE twicesafe_relay_shards SET lease_until = 0 WHERE shard = :door AND owner = :owner
{changed};

-- --- the relay: messages --------------------------------------------------------------------------------------------

-- name: due [sqlite]
-- By the lowest number that is pending, never by one that was seen: transactions commit in another order than they draw
-- their numbers. Of an aggregate with one that waits to be tried again, or is parked, or is under way, nothing.
SELECT
    seq, id, source, type, aggregatetype, aggregateid, payload, subject, created_at, content_type, headers, aggregate,
    shard, attempts
FROM twicesafe_outbox
WHERE state = 'pending' AND (:shards >> shard) & 1 = 1
    AND aggregate NOT IN (
        SELECT stuck.aggregate FROM twicesafe_outbox AS stuck WHERE stuck.next_at > 0 AND stuck.next_at > {now}
    )
    AND aggregate NOT IN (SELECT value FROM json_each(:under_way))
ORDER BY seq LIMIT :limit;

-- name: due [postgresql]
SELECT
    seq, id, source, type, aggregatetype, aggregateid, payload, subject, created_at, content_type, headers, aggregate,
    shard, attempts
FROM twicesafe_outbox
WHERE state = 'pending' AND (CAST(:shards AS bigint) >> shard) & 1 = 1
    AND aggregate NOT IN (
        SELECT stuck.aggregate FROM twicesafe_outbox AS stuck WHERE stuck.next_at > 0 AND stuck.next_at > {now}
    )
    AND aggregate NOT IN (SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:under_way AS json)))
ORDER BY seq LIMIT :limit;

-- name: due [mysql]
SELECT
    seq, id, source, type, aggregatetype, aggregateid, payload, subject, created_at, content_type, headers, aggregate,
    shard, attempts
FROM twicesafe_outbox
WHERE state = 'pending' AND (:shards >> shard) & 1 = 1
    AND aggregate NOT IN (
        SELECT stuck.aggregate FROM twicesafe_outbox AS stuck WHERE stuck.next_at > 0 AND stuck.next_at > {now}
    )
    AND aggregate NOT IN (
        SELECT moving.aggregate
        FROM JSON_TABLE(:under_way, '$[*]' COLUMNS (aggregate BIGINT PATH '$')) AS moving
    )
ORDER BY seq LIMIT :limit;

-- name: delivered [sqlite]
UPDATE twicesafe_outbox SET
    state = 'delivered', attempts = attempts + 1, next_at = 0, last_error = NULL, delivered_at = {now}
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND state = 'pending'
    AND shard IN (SELECT shard FROM twicesafe_relay_shards WHERE owner = :owner AND epoch = :epoch);

-- name: delivered [postgresql]
UPDATE twicesafe_outbox SET
    state = 'delivered', attempts = attempts + 1, next_at = 0, last_error = NULL, delivered_at = {now}
WHERE seq IN (SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:seqs AS json)))
    AND state = 'pending'
    AND shard IN (SELECT shard FROM twicesafe_relay_shards WHERE owner = :owner AND epoch = :epoch)
RETURNING 1;

-- name: delivered [mysql]
-- By the primary key, so that these rows are locked and no gap between them: a writer would wait for that, and this for
-- a writer.
UPDATE JSON_TABLE(:seqs, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS published
STRAIGHT_JOIN twicesafe_outbox FORCE INDEX (PRIMARY) ON twicesafe_outbox.seq = published.seq
JOIN twicesafe_relay_shards ON twicesafe_relay_shards.shard = twicesafe_outbox.shard
SET
    twicesafe_outbox.state = 'delivered', twicesafe_outbox.attempts = twicesafe_outbox.attempts + 1,
    twicesafe_outbox.next_at = 0, twicesafe_outbox.last_error = NULL, twicesafe_outbox.delivered_at = {now}
WHERE twicesafe_outbox.state = 'pending' AND owner = :owner AND epoch = :epoch;

-- name: failed
UPDATE twicesafe_outbox SET attempts = attempts + 1, next_at = {now} + :delay_us, last_error = :error
WHERE seq = :seq AND state = 'pending'
    AND shard IN (SELECT shard FROM twicesafe_relay_shards WHERE owner = :owner AND epoch = :epoch)
{changed};

-- name: set_aside
UPDATE twicesafe_outbox SET state = :state, attempts = attempts + 1, next_at = :next_at, last_error = :error
WHERE seq = :seq AND state = 'pending'
    AND shard IN (SELECT shard FROM twicesafe_relay_shards WHERE owner = :owner AND epoch = :epoch)
{changed};

-- --- operators ------------------------------------------------------------------------------------------------------

-- name: list_messages
SELECT seq, id, type, aggregatetype, aggregateid, state, attempts, next_at, created_at, last_error, {now}
FROM twicesafe_outbox WHERE state = :state AND seq > :after ORDER BY seq LIMIT :limit;

-- name: message
SELECT seq, id, type, aggregatetype, aggregateid, state, attempts, next_at, created_at, last_error
FROM twicesafe_outbox WHERE id = :id;

-- name: message_data
SELECT payload FROM twicesafe_outbox WHERE id = :id;

-- name: retry_message
-- It keeps its number, and so its place: the first of its aggregate that is waiting.
UPDATE twicesafe_outbox SET state = 'pending', attempts = 0, next_at = 0
WHERE id = :id AND (state = 'pending' OR state = 'parked' OR state = 'skipped')
{changed};

-- name: discard_message
UPDATE twicesafe_outbox SET state = 'discarded', next_at = 0, delivered_at = {now}
WHERE id = :id AND (state = 'pending' OR state = 'parked' OR state = 'skipped')
{changed};

-- name: waiting
-- What is parked has a next_at too, and so an index.
SELECT
    (SELECT count(*) FROM twicesafe_outbox WHERE state = 'pending'),
    (SELECT created_at FROM twicesafe_outbox WHERE state = 'pending' ORDER BY seq LIMIT 1),
    (SELECT count(*) FROM twicesafe_outbox WHERE state = 'parked' AND next_at > 0),
    {now};

-- name: purge_to
-- How far a look at so many rows comes. NULL: there are none.
SELECT max(seq), count(*) FROM (
    SELECT seq FROM twicesafe_outbox WHERE seq > :after ORDER BY seq LIMIT :look_at
) AS looked;

-- name: ended_messages
SELECT seq FROM twicesafe_outbox
WHERE seq > :after AND seq <= :place AND (state = 'delivered' OR state = 'discarded')
    AND delivered_at <= {now} - :keep_us;

-- name: purge_messages [sqlite]
DELETE FROM twicesafe_outbox
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND (state = 'delivered' OR state = 'discarded');

-- name: purge_messages [postgresql]
DELETE FROM twicesafe_outbox
WHERE seq IN (SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:seqs AS json)))
    AND (state = 'delivered' OR state = 'discarded')
RETURNING 1;

-- name: purge_messages [mysql]
-- As `delivered`.
DELETE twicesafe_outbox FROM JSON_TABLE(:seqs, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS ended
STRAIGHT_JOIN twicesafe_outbox FORCE INDEX (PRIMARY) ON twicesafe_outbox.seq = ended.seq
WHERE twicesafe_outbox.state = 'delivered' OR twicesafe_outbox.state = 'discarded';
