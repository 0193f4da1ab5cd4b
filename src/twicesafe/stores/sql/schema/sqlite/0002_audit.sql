-- What people did about records, and why. It outlives the records, and is yours to prune.
CREATE TABLE twicesafe_audit (
    id BLOB NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    scope TEXT NOT NULL,
    operation TEXT NOT NULL,
    key_hint TEXT NOT NULL,
    action TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    outcome TEXT NOT NULL
);

CREATE INDEX twicesafe_audit_digest ON twicesafe_audit (digest);
