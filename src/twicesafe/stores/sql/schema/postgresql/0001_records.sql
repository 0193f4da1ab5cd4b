-- One row for each scoped key. Instants are microseconds since the Unix epoch, so that no session's time zone matters.
--
-- Completing a claim must be a HOT update, so no index may hold a column that it changes. Yet purging has to find rows
-- by the end of their retention, which completing moves. So purge_minute is that end in whole minutes, rounded up at
-- the claim: a completion within the minute, with one retention for key and body, leaves it as it is. The index on it
-- is small, for equal values share an entry. The free fifth of each page is for the completed version of its rows: with
-- 8 claims of a page in flight every completion found room there, with 32 half of them did.
CREATE TABLE twicesafe_records (
    digest bytea NOT NULL PRIMARY KEY,
    owner bytea NOT NULL,
    epoch bigint NOT NULL,
    created_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    key_until bigint NOT NULL,
    body_until bigint NOT NULL,
    purge_minute bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    effects text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    scope text NOT NULL,
    operation text NOT NULL,
    key_hint text NOT NULL,
    status bigint,
    headers bytea,
    body bytea,
    recovery_point text,
    recovery_data bytea,
    request bytea,
    CONSTRAINT twicesafe_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT twicesafe_state_is_known CHECK (state IN ('claimed', 'completed', 'unknown')),
    CONSTRAINT twicesafe_effects_are_known CHECK (effects IN ('transactional', 'resumable', 'keyed', 'opaque')),
    CONSTRAINT twicesafe_epoch_grows CHECK (epoch >= 1),
    CONSTRAINT twicesafe_fingerprint_has_algorithm CHECK (octet_length(fingerprint) >= 1),
    CONSTRAINT twicesafe_completed_has_answer CHECK (state <> 'completed' OR status IS NOT NULL),
    CONSTRAINT twicesafe_answer_is_whole CHECK ((status IS NULL) = (headers IS NULL)),
    CONSTRAINT twicesafe_body_has_status CHECK (body IS NULL OR status IS NOT NULL)
) WITH (fillfactor = 80);

CREATE INDEX twicesafe_records_purge ON twicesafe_records (purge_minute);
