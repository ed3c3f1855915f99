-- Which versions of the schema were applied, and when.
CREATE TABLE tenure.migration (
	version    int         PRIMARY KEY,
	applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- 0: none is recorded.
CREATE FUNCTION tenure.schema_version() RETURNS int LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN RETURN (SELECT coalesce(max(m.version), 0) FROM tenure.migration m); END $$;
