-- One row for each scoped key. Instants are microseconds since the Unix epoch, so that no session's time zone matters.
--
-- Rows lie in the order of their digests. The one index is then both where a row is found and where a rival is stopped,
-- and a claim locks one record, never a gap.
--
-- Keys and tokens compare by their bytes. Text is for people. Nothing here is cut to fit where sql_mode is not strict:
-- what has a length has a fixed one, and a check watches over it.
--
-- purge_minute is when purging has to look at the row next, in whole minutes; rounded up at the claim, so that a
-- completion within the minute need not touch its index.
CREATE TABLE IF NOT EXISTS twicesafe_records (
    digest BINARY(32) NOT NULL,
    owner VARBINARY(64) NOT NULL,
    epoch BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    key_until BIGINT NOT NULL,
    body_until BIGINT NOT NULL,
    purge_minute BIGINT NOT NULL,
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    effects VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fingerprint VARBINARY(255) NOT NULL,
    scope TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    operation TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    key_hint TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    status BIGINT,
    headers LONGBLOB,
    body LONGBLOB,
    recovery_point TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    recovery_data LONGBLOB,
    request LONGBLOB,
    PRIMARY KEY (digest),
    KEY twicesafe_records_purge (purge_minute),
    CONSTRAINT twicesafe_state_is_known CHECK (state IN ('claimed', 'completed', 'unknown')),
    CONSTRAINT twicesafe_effects_are_known CHECK (effects IN ('transactional', 'resumable', 'keyed', 'opaque')),
    CONSTRAINT twicesafe_epoch_grows CHECK (epoch >= 1),
    CONSTRAINT twicesafe_fingerprint_has_algorithm CHECK (octet_length(fingerprint) >= 1),
    CONSTRAINT twicesafe_completed_has_answer CHECK (state <> 'completed' OR status IS NOT NULL),
    CONSTRAINT twicesafe_answer_is_whole CHECK ((status IS NULL) = (headers IS NULL)),
    CONSTRAINT twicesafe_body_has_status CHECK (body IS NULL OR status IS NOT NULL)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
