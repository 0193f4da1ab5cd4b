-- What the daily layout of PostgreSQL adds; see statements.sql for the notation, daily.py for the theory.

-- name: bodies_present
SELECT count(*) FROM (SELECT to_regclass('twicesafe_bodies') AS found) AS looked WHERE found IS NOT NULL;

-- name: place_of_records
-- A schema; the first of a search path may be another one.
SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('twicesafe_records');

-- name: days_missing
-- And where to make them: beside their parent.
SELECT day, place
FROM
    generate_series({now} / 86400000000, {now} / 86400000000 + :days_ahead::bigint) AS day,
    (
        SELECT relnamespace::regnamespace::text AS place FROM pg_class WHERE oid = to_regclass('twicesafe_bodies')
    ) AS of_bodies
WHERE to_regclass(place || '.twicesafe_bodies_' || day) IS NULL;

-- name: days_over
-- Days whose every body has ended. One that is pending was being detached when whoever did it went away; one that is
-- detached was not dropped.
SELECT found.name, CASE WHEN found.parent IS NULL THEN 'detached' WHEN found.pending THEN 'pending' ELSE 'attached' END
FROM (
    SELECT
        relnamespace::regnamespace || '.' || relname AS name, inhparent AS parent, inhdetachpending AS pending,
        CASE WHEN relname ~ '^twicesafe_bodies_[0-9]{1,9}$' THEN substr(relname, 18)::bigint END AS day
    FROM pg_class LEFT JOIN pg_inherits ON inhrelid = pg_class.oid
    WHERE relkind = 'r'
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('twicesafe_bodies'))
) AS found
WHERE found.day < {now} / 86400000000
ORDER BY found.day;
