-- What MySQL and MariaDB say otherwise than statements.sql does; the conventions are those of that file.
--
-- MySQL has no RETURNING. LAST_INSERT_ID(x) leaves x in the answer to the statement, whatever the connection counts:
-- rows that match or only those that change. It depends on a column of the row, so that no row means no answer. Where
-- that is all that is to be told, epoch is set to itself.
--
-- Assignments are made from left to right, and each sees those before it. Whole numbers are divided by DIV.

-- --- transactions ---------------------------------------------------------------------------------------------------

-- name: begin [mysql]
START TRANSACTION READ WRITE;

-- name: mark [mysql]
SAVEPOINT twicesafe;

-- name: still_open [mysql]
-- Fails where the transaction is not the one that was begun: after a COMMIT or ROLLBACK of the handler's own, after
-- statements that commit by themselves, such as DDL, and after the server rolled back for a deadlock.
RELEASE SAVEPOINT twicesafe;

-- name: lock [mysql]
-- A lock of the session, by the key's name in this database; it outlasts the transaction.
SET @twicesafe_lock = IF(GET_LOCK(CONCAT(:lock_name, LEFT(SHA1(DATABASE()), 16)), :patience) = 1, 'mine', 'other');

-- name: unlock [mysql]
DO RELEASE_ALL_LOCKS();

-- --- claiming, leased -----------------------------------------------------------------------------------------------

-- name: claim [mysql]
-- Answers with its time. Where a row is in the way it fails, and then only the one who reads learns whose it is.
INSERT INTO twicesafe_records (
    digest, scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
    created_at, lease_until, key_until, body_until, purge_minute, request
) VALUES (
    :digest, :scope, :operation, :key_hint, :fingerprint, :effects, 'claimed', :owner, 1,
    LAST_INSERT_ID({now}), {now} + :lease_us, {now} + :key_us, {now} + :key_us, ({now} + :key_us) DIV 60000000 + 1,
    :request
);

-- name: claim_expired [mysql]
-- Answers with its time.
UPDATE twicesafe_records SET
    scope = :scope, operation = :operation, key_hint = :key_hint, fingerprint = :fingerprint, effects = :effects,
    state = 'claimed', owner = :owner, epoch = epoch + 1,
    created_at = LAST_INSERT_ID({now} + 0 * epoch),
    lease_until = {now} + :lease_us, key_until = {now} + :key_us, body_until = {now} + :key_us,
    purge_minute = ({now} + :key_us) DIV 60000000 + 1,
    status = NULL, headers = NULL, body = NULL, recovery_point = NULL, recovery_data = NULL, request = :request
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'completed' AND key_until = :seen_key_until;

-- name: take_over [mysql]
-- Answers with its time.
UPDATE twicesafe_records SET
    effects = :effects, owner = :owner, epoch = epoch + 1,
    lease_until = LAST_INSERT_ID({now} + 0 * epoch) + :lease_us, request = COALESCE(request, :request)
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NULL
    AND COALESCE(recovery_point, '') = :seen_point
    AND lease_until <= {now} AND (key_until > {now} OR effects = 'transactional');

-- name: hold_stale [mysql]
UPDATE twicesafe_records SET epoch = LAST_INSERT_ID(epoch), state = 'unknown'
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NULL;

-- name: settle_answered [mysql]
UPDATE twicesafe_records SET
    epoch = LAST_INSERT_ID(epoch),
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now},
    purge_minute = ({now} + :key_us) DIV 60000000
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NOT NULL;

-- --- the owner's statements -----------------------------------------------------------------------------------------

-- name: renew [mysql]
-- Answers with its time.
UPDATE twicesafe_records SET lease_until = LAST_INSERT_ID({now} + 0 * epoch) + :lease_us
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed';

-- name: advance [mysql]
-- Each column is set to what the ones before it have become, so the point comes last. What is longer than a packet CONCAT
-- would give as NULL; where it would, nothing moves, as if the claim were lost.
UPDATE twicesafe_records SET
    epoch = LAST_INSERT_ID(epoch),
    recovery_data = CASE WHEN recovery_point IS NULL THEN :data ELSE CONCAT(recovery_data, :data) END,
    recovery_point = :point
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed'
    AND COALESCE(recovery_point, '') = :seen_point
    AND COALESCE(OCTET_LENGTH(recovery_data), 0) + OCTET_LENGTH(:data) < @@max_allowed_packet;

-- name: start_answer [mysql]
UPDATE twicesafe_records SET epoch = LAST_INSERT_ID(epoch), status = :status, headers = :headers, body = NULL
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed';

-- name: complete [mysql]
UPDATE twicesafe_records SET
    epoch = LAST_INSERT_ID(epoch),
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now} + :body_us,
    purge_minute = CASE
        WHEN purge_minute - ({now} + :purge_us) DIV 60000000 BETWEEN 0 AND 1 THEN purge_minute
        ELSE ({now} + :purge_us) DIV 60000000
    END,
    status = :status, headers = :headers, body = :body
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state IN ('claimed', 'unknown');

-- name: hold [mysql]
UPDATE twicesafe_records SET epoch = LAST_INSERT_ID(epoch), state = 'unknown'
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state IN ('claimed', 'unknown');

-- --- claiming, transactional ----------------------------------------------------------------------------------------

-- name: look [mysql]
-- Outside the transaction, and so as of now at every isolation level, without locking anything.
SELECT {columns}, clock.instant, @twicesafe_lock
FROM (SELECT {now} AS instant) AS clock LEFT JOIN twicesafe_records ON digest = :digest;

-- name: whose [mysql]
SELECT @twicesafe_lock;

-- name: find_current [mysql]
-- Inside a transaction that may have looked at the table before, and would go on seeing what it saw then.
SELECT {columns}, {now} FROM twicesafe_records WHERE digest = :digest FOR UPDATE;

-- name: record [mysql]
-- Goes in where nothing is in the way, and else fails.
INSERT INTO twicesafe_records (
    digest, scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
    created_at, lease_until, key_until, body_until, purge_minute, status, headers, body
) VALUES (
    :digest, :scope, :operation, :key_hint, :fingerprint, :effects, 'completed', :owner, :epoch,
    :created_at, {now}, {now} + :key_us, {now} + :body_us, ({now} + :purge_us) DIV 60000000, :status, :headers, :body
);

-- name: record_over [mysql]
-- Where a record was in the way, and is still as it was seen.
UPDATE twicesafe_records SET
    scope = :scope, operation = :operation, key_hint = :key_hint, fingerprint = :fingerprint, effects = :effects,
    state = 'completed', owner = :owner, epoch = LAST_INSERT_ID(0 * epoch + :epoch),
    created_at = :created_at, lease_until = {now}, key_until = {now} + :key_us, body_until = {now} + :body_us,
    purge_minute = ({now} + :purge_us) DIV 60000000, status = :status, headers = :headers, body = :body,
    recovery_point = NULL, recovery_data = NULL, request = NULL
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = :seen_state AND lease_until = :seen_lease_until
    AND (state = 'completed' OR status IS NULL);

-- --- everybody else -------------------------------------------------------------------------------------------------

-- name: settle [mysql]
UPDATE twicesafe_records SET
    epoch = LAST_INSERT_ID(epoch),
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now} + :body_us,
    purge_minute = ({now} + :purge_us) DIV 60000000, status = :status, headers = :headers, body = :body
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'unknown';

-- name: reopen [mysql]
UPDATE twicesafe_records SET
    epoch = LAST_INSERT_ID(epoch),
    state = 'claimed', lease_until = CASE WHEN :at_once = 1 THEN created_at ELSE {now} END,
    recovery_point = :point, recovery_data = :data
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'unknown' AND effects = 'resumable'
    AND COALESCE(recovery_point, '') = :seen_point;

-- name: sweep_to [mysql]
-- How far a sweep that stopped after :after goes next, and whether that is the end.
SELECT max(digest), count(*) < :look_at
FROM (SELECT digest FROM twicesafe_records WHERE digest > :after ORDER BY digest LIMIT :look_at) AS looked_at;

-- name: stale [mysql]
SELECT {columns}, {now} FROM twicesafe_records
WHERE digest > :after AND digest <= :place AND state = 'claimed' AND lease_until <= {now}
    AND (effects = 'opaque' OR status IS NOT NULL OR key_until <= {now})
LIMIT :most;

-- name: outstanding [mysql]
SELECT {columns}, {now} FROM twicesafe_records
WHERE digest > :after AND digest <= :place AND (state = 'unknown'
    OR state = 'claimed' AND effects = 'resumable' AND lease_until <= {now} AND status IS NULL);

-- name: purge_keys [mysql]
-- Rows somebody is busy with are left for the next time: the choice comes first, and passes them by. The index is forced
-- because a small table would be read whole, and waited for.
DELETE record FROM (
    SELECT digest FROM twicesafe_records
    WHERE purge_minute <= {now} DIV 60000000 + 1 AND state = 'completed' AND key_until <= {now}
    ORDER BY purge_minute LIMIT :limit FOR UPDATE SKIP LOCKED
) AS chosen STRAIGHT_JOIN twicesafe_records AS record FORCE INDEX (PRIMARY) ON record.digest = chosen.digest;

-- name: purge_bodies [mysql]
UPDATE (
    SELECT digest FROM twicesafe_records
    WHERE purge_minute <= {now} DIV 60000000 + 1 AND state = 'completed' AND body IS NOT NULL
        AND body_until <= {now} AND key_until > {now}
    ORDER BY purge_minute LIMIT :limit FOR UPDATE SKIP LOCKED
) AS chosen STRAIGHT_JOIN twicesafe_records AS record FORCE INDEX (PRIMARY) ON record.digest = chosen.digest
SET record.body = NULL, record.purge_minute = record.key_until DIV 60000000;

-- --- schema ---------------------------------------------------------------------------------------------------------

-- name: schema_lock [mysql]
-- One at a time. Statements that make tables commit by themselves here, so no transaction would do.
SELECT GET_LOCK(CONCAT('twicesafe.schema.', LEFT(SHA1(DATABASE()), 16)), 5);

-- name: schema_present [mysql]
SELECT count(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'twicesafe_schema';
