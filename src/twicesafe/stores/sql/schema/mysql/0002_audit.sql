-- What people did about records, and why. It outlives the records, and is yours to prune.
CREATE TABLE IF NOT EXISTS twicesafe_audit (
    id BINARY(16) NOT NULL,
    at BIGINT NOT NULL,
    digest BINARY(32) NOT NULL,
    scope TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    operation TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    key_hint TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    action TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    who TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    why TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    outcome VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (id),
    KEY twicesafe_audit_digest (digest)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
