-- Every statement of the SQL stores, each once. A dialect's own form stands under "-- name: <name> [dialect]".
--
-- :parameter     by name; rendered in the driver's own style
-- {now}          the store's clock (I12), microseconds since the Unix epoch, read anew wherever it stands
-- {columns}      a whole record, in the order of rows.py
-- {changed}      a row, whatever is in it, for each row that was changed
-- {settled}      the same, of a key that is in progress no more; what is in it may tell that somebody waits for that
--
-- Conditions name everything the decision was made on, so that 0 rows means: it has changed, look again.

-- --- transactions ---------------------------------------------------------------------------------------------------

-- name: begin [sqlite]
-- A deferred BEGIN that reads and then writes fails at once when somebody else wrote in between.
BEGIN IMMEDIATE;

-- name: begin [postgresql]
-- Whatever the database's defaults: each statement must see what was committed before it.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- --- claiming, leased -----------------------------------------------------------------------------------------------

-- name: claim
-- purge_minute is one later than due: a completion within the minute then leaves it alone, see the schema.
INSERT INTO twicesafe_records (
    digest, scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
    created_at, lease_until, key_until, body_until, purge_minute, request
) VALUES (
    :digest, :scope, :operation, :key_hint, :fingerprint, :effects, 'claimed', :owner, 1,
    {now}, {now} + :lease_us, {now} + :key_us, {now} + :key_us, ({now} + :key_us) / 60000000 + 1, :request
)
ON CONFLICT (digest) DO NOTHING
RETURNING owner, created_at;

-- name: find
SELECT {columns}, {now} FROM twicesafe_records WHERE digest = :digest;

-- name: claim_expired
-- Nothing is remembered: everything begins anew but the epoch, which only grows.
UPDATE twicesafe_records SET
    scope = :scope, operation = :operation, key_hint = :key_hint, fingerprint = :fingerprint, effects = :effects,
    state = 'claimed', owner = :owner, epoch = epoch + 1,
    created_at = {now}, lease_until = {now} + :lease_us, key_until = {now} + :key_us, body_until = {now} + :key_us,
    purge_minute = ({now} + :key_us) / 60000000 + 1,
    status = NULL, headers = NULL, body = NULL, recovery_point = NULL, recovery_data = NULL, request = :request
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'completed' AND key_until = :seen_key_until
RETURNING epoch, created_at;

-- name: take_over
-- key_until stays that of the first claim: the keys derived for it are remembered downstream no longer than that (R25).
-- lease_until tells a renewal in between, status an answer that has begun to leave, recovery_point a step. What was
-- seen may have been seen a while ago, so that time is told again.
UPDATE twicesafe_records SET
    effects = :effects, owner = :owner, epoch = epoch + 1, lease_until = {now} + :lease_us,
    request = COALESCE(request, :request)
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NULL
    AND COALESCE(recovery_point, '') = :seen_point
    AND lease_until <= {now} AND (key_until > {now} OR effects = 'transactional')
RETURNING {now};

-- name: hold_stale
UPDATE twicesafe_records SET state = 'unknown'
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NULL
RETURNING {columns}, {now};

-- name: settle_answered
-- Its answer had begun to leave, so it was done.
UPDATE twicesafe_records SET
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now},
    purge_minute = ({now} + :key_us) / 60000000
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NOT NULL
RETURNING {columns}, {now};

-- name: forget_stale
-- Nothing was left behind, and nobody came back while its key was remembered.
DELETE FROM twicesafe_records
WHERE digest = :digest AND owner = :seen_owner AND epoch = :seen_epoch
    AND state = 'claimed' AND lease_until = :seen_lease_until AND status IS NULL
{changed};

-- --- the owner's statements: ownership is the condition (I3) ---------------------------------------------------------

-- name: renew
UPDATE twicesafe_records SET lease_until = {now} + :lease_us
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed'
RETURNING {now};

-- name: advance [sqlite]
-- The recovery point moves from where it was seen, or not at all (I10). Its data is added behind what is there.
UPDATE twicesafe_records SET
    recovery_point = :point,
    recovery_data = CAST(CASE WHEN recovery_point IS NULL THEN :data ELSE recovery_data || :data END AS BLOB)
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed'
    AND COALESCE(recovery_point, '') = :seen_point
{changed};

-- name: advance [postgresql]
UPDATE twicesafe_records SET
    recovery_point = :point,
    recovery_data = CASE WHEN recovery_point IS NULL THEN :data::bytea ELSE recovery_data || :data::bytea END
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed'
    AND COALESCE(recovery_point, '') = :seen_point
{changed};

-- name: start_answer
UPDATE twicesafe_records SET status = :status, headers = :headers, body = NULL
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'claimed'
{changed};

-- name: complete
-- From now on lease_until tells when it was completed.
UPDATE twicesafe_records SET
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now} + :body_us,
    purge_minute = CASE
        WHEN purge_minute - ({now} + :purge_us) / 60000000 BETWEEN 0 AND 1 THEN purge_minute
        ELSE ({now} + :purge_us) / 60000000
    END,
    status = :status, headers = :headers, body = :body
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state IN ('claimed', 'unknown')
{settled};

-- name: release
-- Not once its owner is gone and its answer had begun to leave: that was done.
DELETE FROM twicesafe_records
WHERE digest = :digest AND owner = :owner AND epoch = :epoch
    AND (state = 'unknown' OR state = 'claimed' AND (status IS NULL OR lease_until > {now}))
{settled};

-- name: hold
UPDATE twicesafe_records SET state = 'unknown'
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state IN ('claimed', 'unknown')
{settled};

-- --- claiming, transactional ----------------------------------------------------------------------------------------

-- name: lock [postgresql]
-- One row stands for two locks of this transaction. The request's comes first: whoever holds the key's lock holds that
-- of its own request, so a rival with the same request is told apart at once and for certain. Keys are whole numbers
-- only. The answer is left in a setting, because a row read by this same statement would be as old as its start.
SELECT set_config('twicesafe.lock', CASE
    WHEN NOT pg_try_advisory_xact_lock(:digest_int4, :fingerprint_int4) THEN 'same'
    WHEN pg_try_advisory_xact_lock(:digest_int8) THEN 'mine'
    ELSE 'other'
END, true);

-- name: look [sqlite]
-- Always one row: the record's columns are NULL where there is none, the clock is not. BEGIN IMMEDIATE has made
-- everything mine.
SELECT {columns}, clock.now, 'mine' AS lock
FROM (SELECT {now} AS now) AS clock LEFT JOIN twicesafe_records ON digest = :digest;

-- name: look [postgresql]
-- No lock at all is told where each statement commits by itself; "frozen", where the snapshot may be older than the lock.
SELECT {columns}, clock.now, current_setting('twicesafe.lock', true)
    || CASE current_setting('transaction_isolation') WHEN 'read committed' THEN '' ELSE ' frozen' END AS lock
FROM (SELECT {now} AS now) AS clock LEFT JOIN twicesafe_records ON digest = :digest;

-- name: unchanged [postgresql]
-- In a frozen snapshot this fails, and asks to be begun again, where the row has changed since.
SELECT 1 FROM twicesafe_records WHERE digest = :digest FOR SHARE;

-- name: rival_of_another_request [postgresql]
-- The key's lock was taken while this request's was free. That is another request, or the same one at its very end,
-- when locks go one by one; only a holder that has another request's lock too is proof (I4).
SELECT 1
FROM pg_locks AS of_key JOIN pg_locks AS of_request
    ON of_request.pid = of_key.pid AND of_request.database = of_key.database
WHERE of_key.locktype = 'advisory' AND of_key.granted AND of_key.objsubid = 1
    AND of_key.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (of_key.classid::bigint << 32 | of_key.objid::bigint) = :digest_int8
    AND of_request.locktype = 'advisory' AND of_request.granted AND of_request.objsubid = 2
    AND of_request.classid::bigint = :digest_uint4 AND of_request.objid::bigint <> :fingerprint_uint4
LIMIT 1;

-- name: record
-- The whole of a transactional request, in the transaction of its effects. Where a record is in the way it is the one
-- that was seen, still as it was seen, or nothing happens.
INSERT INTO twicesafe_records (
    digest, scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
    created_at, lease_until, key_until, body_until, purge_minute, status, headers, body
) VALUES (
    :digest, :scope, :operation, :key_hint, :fingerprint, :effects, 'completed', :owner, :epoch,
    :created_at, {now}, {now} + :key_us, {now} + :body_us, ({now} + :purge_us) / 60000000, :status, :headers, :body
)
ON CONFLICT (digest) DO UPDATE SET
    scope = excluded.scope, operation = excluded.operation, key_hint = excluded.key_hint,
    fingerprint = excluded.fingerprint, effects = excluded.effects, state = excluded.state, owner = excluded.owner,
    epoch = excluded.epoch, created_at = excluded.created_at, lease_until = excluded.lease_until,
    key_until = excluded.key_until, body_until = excluded.body_until, purge_minute = excluded.purge_minute,
    status = excluded.status, headers = excluded.headers, body = excluded.body,
    recovery_point = NULL, recovery_data = NULL, request = NULL
WHERE twicesafe_records.owner = :seen_owner AND twicesafe_records.epoch = :seen_epoch
    AND twicesafe_records.state = :seen_state AND twicesafe_records.lease_until = :seen_lease_until
    AND (twicesafe_records.state = 'completed' OR twicesafe_records.status IS NULL)
{settled};

-- name: record [postgresql]
-- The lock's setting ends with its transaction: in another one, which a handler began behind this one's back, nothing
-- happens either.
INSERT INTO twicesafe_records (
    digest, scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
    created_at, lease_until, key_until, body_until, purge_minute, status, headers, body
)
SELECT
    :digest::bytea, :scope::text, :operation::text, :key_hint::text, :fingerprint::bytea, :effects::text, 'completed',
    :owner::bytea, :epoch::bigint, :created_at::bigint, {now}, {now} + :key_us::bigint, {now} + :body_us::bigint,
    ({now} + :purge_us::bigint) / 60000000, :status::bigint, :headers::bytea, :body::bytea
WHERE current_setting('twicesafe.lock', true) = 'mine'
ON CONFLICT (digest) DO UPDATE SET
    scope = excluded.scope, operation = excluded.operation, key_hint = excluded.key_hint,
    fingerprint = excluded.fingerprint, effects = excluded.effects, state = excluded.state, owner = excluded.owner,
    epoch = excluded.epoch, created_at = excluded.created_at, lease_until = excluded.lease_until,
    key_until = excluded.key_until, body_until = excluded.body_until, purge_minute = excluded.purge_minute,
    status = excluded.status, headers = excluded.headers, body = excluded.body,
    recovery_point = NULL, recovery_data = NULL, request = NULL
WHERE twicesafe_records.owner = :seen_owner AND twicesafe_records.epoch = :seen_epoch
    AND twicesafe_records.state = :seen_state AND twicesafe_records.lease_until = :seen_lease_until
    AND (twicesafe_records.state = 'completed' OR twicesafe_records.status IS NULL)
{settled};

-- name: still_mine [postgresql]
SELECT 1 WHERE current_setting('twicesafe.lock', true) = 'mine';

-- --- everybody else -------------------------------------------------------------------------------------------------

-- name: await_transaction [postgresql]
-- Waits, within bounds, until no transaction is in flight for this key.
SELECT set_config('lock_timeout', '5s', true), pg_advisory_xact_lock_shared(:digest_int8);

-- name: mark_waiting [postgresql]
-- A lock of the session, shared by all who wait: whoever settles the key cannot have it alone, and so learns of them.
-- Not had while somebody is about to commit just that.
SELECT waited FROM unnest(:digests::bytea[]) AS waited
WHERE pg_try_advisory_lock_shared(('x' || encode(substr(waited, 9, 8), 'hex'))::bit(64)::bigint);

-- name: unmark_waiting [postgresql]
SELECT pg_advisory_unlock_shared(('x' || encode(substr(waited, 9, 8), 'hex'))::bit(64)::bigint)
FROM unnest(:digests::bytea[]) AS waited;

-- name: in_progress [postgresql]
-- Those of many keys that a claim would find in progress: claimed and leased, or in a transaction that has its lock.
SELECT waited
FROM unnest(:digests::bytea[]) AS waited LEFT JOIN twicesafe_records AS record ON record.digest = waited
WHERE CASE
    WHEN record.state = 'claimed' AND record.lease_until > {now} THEN true
    WHEN record.state = 'unknown' OR record.state = 'completed' AND record.key_until > {now} THEN false
    ELSE EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint)
                = ('x' || encode(substr(waited, 1, 8), 'hex'))::bit(64)::bigint
    )
END;

-- name: settle
UPDATE twicesafe_records SET
    state = 'completed', lease_until = {now}, key_until = {now} + :key_us, body_until = {now} + :body_us,
    purge_minute = ({now} + :purge_us) / 60000000, status = :status, headers = :headers, body = :body
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'unknown'
{settled};

-- name: settle_not_done
DELETE FROM twicesafe_records WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'unknown'
{settled};

-- name: reopen
-- An operation that was held goes on, from where it is said to be: its claim is stale at once, or since it was created.
UPDATE twicesafe_records SET
    state = 'claimed', lease_until = CASE WHEN :at_once = 1 THEN created_at ELSE {now} END,
    recovery_point = :point, recovery_data = :data
WHERE digest = :digest AND owner = :owner AND epoch = :epoch AND state = 'unknown' AND effects = 'resumable'
    AND COALESCE(recovery_point, '') = :seen_point
{changed};

-- name: audit
-- Written before what it tells of is done, so that nothing is done without it.
INSERT INTO twicesafe_audit (id, at, digest, scope, operation, key_hint, action, who, why, outcome)
VALUES (:id, {now}, :digest, :scope, :operation, :key_hint, :action, :who, :why, 'asked');

-- name: audit_outcome
UPDATE twicesafe_audit SET outcome = :outcome WHERE id = :id;

-- name: audits
SELECT id, at, digest, scope, operation, key_hint, action, who, why, outcome
FROM twicesafe_audit WHERE digest = :digest ORDER BY at, id;

-- name: now
SELECT {now};

-- name: sweep_to [sqlite]
-- Where a sweep that stopped after :after stops next: how far it looks, and whether anything is left behind that. No
-- index finds stale claims, for completing would have to change it; so all rows are looked at, as they lie.
SELECT max(place), count(*) < :look_at FROM (
    SELECT rowid AS place FROM twicesafe_records WHERE rowid > :after ORDER BY rowid LIMIT :look_at
) AS looked;

-- name: sweep_to [postgresql]
-- In pages of the table, of 16 rows each.
SELECT next.page, next.page >= pg_relation_size('twicesafe_records') / current_setting('block_size')::bigint
FROM (SELECT :after::bigint + :look_at::bigint / 16 + 1 AS page) AS next;

-- name: stale [sqlite]
-- Those that lifecycle.abandoned ends, and no others: what is left for its retry would be found again and again.
SELECT {columns}, {now} FROM twicesafe_records
WHERE rowid > :after AND rowid <= :place AND state = 'claimed' AND lease_until <= (SELECT {now})
    AND (effects = 'opaque' OR status IS NOT NULL OR key_until <= (SELECT {now}))
LIMIT :most;

-- name: stale [postgresql]
SELECT {columns}, {now} FROM twicesafe_records
WHERE ctid >= ('(' || :after::bigint || ',0)')::tid AND ctid < ('(' || :place::bigint || ',0)')::tid
    AND state = 'claimed' AND lease_until <= (SELECT {now})
    AND (effects = 'opaque' OR status IS NOT NULL OR key_until <= (SELECT {now}))
LIMIT :most;

-- name: outstanding [sqlite]
-- What waits for somebody: unknown outcomes, and operations that a worker can go on with.
SELECT {columns}, {now} FROM twicesafe_records
WHERE rowid > :after AND rowid <= :place AND (state = 'unknown'
    OR state = 'claimed' AND effects = 'resumable' AND lease_until <= (SELECT {now}) AND status IS NULL);

-- name: outstanding [postgresql]
SELECT {columns}, {now} FROM twicesafe_records
WHERE ctid >= ('(' || :after::bigint || ',0)')::tid AND ctid < ('(' || :place::bigint || ',0)')::tid
    AND (state = 'unknown'
        OR state = 'claimed' AND effects = 'resumable' AND lease_until <= (SELECT {now}) AND status IS NULL);

-- name: purge_keys [sqlite]
DELETE FROM twicesafe_records WHERE rowid IN (
    SELECT rowid FROM twicesafe_records
    WHERE purge_minute <= (SELECT {now} / 60000000 + 1) AND state = 'completed' AND key_until <= (SELECT {now})
    ORDER BY purge_minute LIMIT :limit
)
{changed};

-- name: purge_keys [postgresql]
-- Rows somebody is busy with are left for the next time. The clock stands in a sub-select so that the index serves,
-- and the choice in an array so that it is made once.
DELETE FROM twicesafe_records WHERE digest = ANY (ARRAY(
    SELECT digest FROM twicesafe_records
    WHERE purge_minute <= (SELECT {now} / 60000000 + 1) AND state = 'completed' AND key_until <= (SELECT {now})
    ORDER BY purge_minute LIMIT :limit FOR UPDATE SKIP LOCKED
))
{changed};

-- name: purge_bodies [sqlite]
UPDATE twicesafe_records SET body = NULL, purge_minute = key_until / 60000000 WHERE rowid IN (
    SELECT rowid FROM twicesafe_records
    WHERE purge_minute <= (SELECT {now} / 60000000 + 1) AND state = 'completed' AND body IS NOT NULL
        AND body_until <= (SELECT {now}) AND key_until > (SELECT {now})
    ORDER BY purge_minute LIMIT :limit
)
{changed};

-- name: purge_bodies [postgresql]
UPDATE twicesafe_records SET body = NULL, purge_minute = key_until / 60000000 WHERE digest = ANY (ARRAY(
    SELECT digest FROM twicesafe_records
    WHERE purge_minute <= (SELECT {now} / 60000000 + 1) AND state = 'completed' AND body IS NOT NULL
        AND body_until <= (SELECT {now}) AND key_until > (SELECT {now})
    ORDER BY purge_minute LIMIT :limit FOR UPDATE SKIP LOCKED
))
{changed};

-- --- schema ---------------------------------------------------------------------------------------------------------

-- name: schema_lock [sqlite]
-- BEGIN IMMEDIATE has locked out everybody else.
SELECT 1;

-- name: schema_lock [postgresql]
-- One at a time; the number is "twicesaf" in ASCII.
SELECT pg_advisory_xact_lock(8392292306252947814);

-- name: schema_present [sqlite]
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'twicesafe_schema';

-- name: schema_present [postgresql]
SELECT count(*) FROM (SELECT to_regclass('twicesafe_schema') AS found) AS looked WHERE found IS NOT NULL;

-- name: schema_version
SELECT max(version) FROM twicesafe_schema;

-- name: schema_applied
INSERT INTO twicesafe_schema (version, applied_at) VALUES (:version, {now});
