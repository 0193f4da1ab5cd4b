-- What the dashboard reads, each once, in the form of the stores' own statements. Parameters are written into the text,
-- whole numbers and bytes only, so that it is the same for every driver.
--
-- Nothing here reads more than :look_at rows, nor any body. What is kept of a record is looked through a page at a time,
-- as it lies: no index tells states or ages, for completing a claim would have to change it.

-- name: place [postgresql]
-- Pages of the table hold 16 rows each, at least; NULL where there are no more.
SELECT CASE WHEN :after >= pg_relation_size('twicesafe_records') / current_setting('block_size')::bigint
    THEN NULL ELSE :after + :look_at / 16 + 1 END;

-- name: looked [sqlite]
SELECT digest, scope, operation, key_hint, effects, state, epoch, created_at, lease_until, key_until, status,
    recovery_point, rowid
FROM twicesafe_records WHERE rowid > :after ORDER BY rowid LIMIT :look_at;

-- name: looked [postgresql]
SELECT digest, scope, operation, key_hint, effects, state, epoch, created_at, lease_until, key_until, status,
    recovery_point
FROM twicesafe_records WHERE ctid >= '(:after,0)'::tid AND ctid < '(:place,0)'::tid;

-- name: looked [mysql]
SELECT digest, scope, operation, key_hint, effects, state, epoch, created_at, lease_until, key_until, status,
    recovery_point, digest
FROM twicesafe_records WHERE digest > :after ORDER BY digest LIMIT :look_at;

-- name: pending
SELECT seq, id, type, aggregatetype, aggregateid, state, attempts, next_at, created_at, last_error
FROM twicesafe_outbox WHERE state = 'pending' AND seq > :after ORDER BY seq LIMIT :limit;

-- name: parked
-- Parked messages are tried again at the end of time, which has an index.
SELECT seq, id, type, aggregatetype, aggregateid, state, attempts, next_at, created_at, last_error
FROM twicesafe_outbox
WHERE next_at > 0 AND next_at = 9223372036854775807 AND state = 'parked' AND seq > :after ORDER BY seq LIMIT :limit;

-- name: newest
SELECT COALESCE(max(seq), 0) FROM twicesafe_outbox;

-- name: skipped
-- Nothing finds these but looking: among the :look_at messages before one.
SELECT seq, id, type, aggregatetype, aggregateid, state, attempts, next_at, created_at, last_error
FROM twicesafe_outbox
WHERE seq <= :before AND seq > :before - :look_at AND state = 'skipped' ORDER BY seq DESC LIMIT :limit;
