-- One row for each scoped key. Instants are microseconds since the Unix epoch.
--
-- purge_minute is when purging has to look at the row next, in whole minutes; rounded up at the claim, so that a
-- completion within the minute need not touch the index.
--
-- Rows are kept in order of arrival. WITHOUT ROWID would cluster them by digest: claim and completion took twice as
-- long at 60,000 rows with bodies of 200 bytes, 2.6 times as long with 3,000, and the file was larger.
-- For IN with three values SQLite builds a table at each insert, hence the ORs.
CREATE TABLE twicesafe_records (
    digest BLOB NOT NULL PRIMARY KEY,
    owner BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    key_until INTEGER NOT NULL,
    body_until INTEGER NOT NULL,
    purge_minute INTEGER NOT NULL,
    state TEXT NOT NULL,
    effects TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    scope TEXT NOT NULL,
    operation TEXT NOT NULL,
    key_hint TEXT NOT NULL,
    status INTEGER,
    headers BLOB,
    body BLOB,
    recovery_point TEXT,
    recovery_data BLOB,
    request BLOB,
    CONSTRAINT twicesafe_digest_is_sha256 CHECK (typeof(digest) = 'blob' AND length(digest) = 32),
    CONSTRAINT twicesafe_state_is_known CHECK (state = 'claimed' OR state = 'completed' OR state = 'unknown'),
    CONSTRAINT twicesafe_effects_are_known CHECK (
        effects = 'transactional' OR effects = 'resumable' OR effects = 'keyed' OR effects = 'opaque'
    ),
    CONSTRAINT twicesafe_epoch_grows CHECK (epoch >= 1),
    CONSTRAINT twicesafe_fingerprint_has_algorithm CHECK (length(fingerprint) >= 1),
    CONSTRAINT twicesafe_completed_has_answer CHECK (state <> 'completed' OR status IS NOT NULL),
    CONSTRAINT twicesafe_answer_is_whole CHECK ((status IS NULL) = (headers IS NULL)),
    CONSTRAINT twicesafe_body_has_status CHECK (body IS NULL OR status IS NOT NULL)
);

CREATE INDEX twicesafe_records_purge ON twicesafe_records (purge_minute);
