-- What people did about records, and why. It outlives the records, and is yours to prune.
CREATE TABLE twicesafe_audit (
    id bytea NOT NULL PRIMARY KEY,
    at bigint NOT NULL,
    digest bytea NOT NULL,
    scope text NOT NULL,
    operation text NOT NULL,
    key_hint text NOT NULL,
    action text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    outcome text NOT NULL
);

CREATE INDEX twicesafe_audit_digest ON twicesafe_audit (digest);
