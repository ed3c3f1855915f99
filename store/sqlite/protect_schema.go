package sqlite

// schemaV2 adds what protected tables need. The triggers of those tables stand in the file and are run by every program that writes it, whatever
// its SQLite: so nothing here is newer than the STRICT tables of the first schema (3.37), and RAISE takes a literal (an expression is read from 3.47 on, and
// a file with one could not even be opened by an older library).
const schemaV2 = `
-- Claims that the open transaction has presented. No row outlives its transaction: its foreign key has no parent (tenure_authority has the one row 1),
-- so a COMMIT that leaves one fails where foreign keys are enforced, and Present refuses where they are not. SQLite has one writer at a time: what
-- was valid when it was presented, under the writer lock, nobody can take over before the transaction ends.
CREATE TABLE tenure_presented (
	name        TEXT    PRIMARY KEY,
	acquisition BLOB    NOT NULL,
	token       INTEGER NOT NULL,
	mark        INTEGER NOT NULL, -- the authority's when it was presented: any store's next write moves it, and the row is void
	at          INTEGER NOT NULL, -- authority time when it was presented
	open        INTEGER NOT NULL DEFAULT 0 CHECK (open = 0) REFERENCES tenure_authority (one) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

-- All claims are verified here, those of the library too. A row by hand proves nothing: it must be the claim of the latest acquisition, and not
-- be over by anything that is written.
CREATE TRIGGER tenure_presented_insert BEFORE INSERT ON tenure_presented BEGIN
	SELECT RAISE(ABORT, 'tenure: this claim does not hold; nothing was presented; present claims by the library')
	WHERE NOT EXISTS (SELECT 1 FROM tenure_lease l CROSS JOIN tenure_session s ON s.id = l.session CROSS JOIN tenure_authority a
		WHERE l.name = NEW.name AND l.acquisition = NEW.acquisition AND l.token = NEW.token AND l.over = 0 AND (l.hold_end = 0 OR l.hold_end > NEW.at)
			AND s.ended = 0 AND s.since < l.token AND s.expiry > NEW.at AND a.one = 1 AND a.mark = NEW.mark AND a.mark <= NEW.at);
END;
CREATE TRIGGER tenure_presented_update BEFORE UPDATE ON tenure_presented BEGIN
	SELECT RAISE(ABORT, 'tenure: what was presented is not changed; nothing was written; present the claim again');
END;

-- The names that the open transaction may write. The triggers of protected tables look here.
CREATE VIEW tenure_in_force AS
	SELECT p.name AS name FROM tenure_presented p CROSS JOIN tenure_authority a WHERE a.one = 1 AND a.mark = p.mark;

-- What was asked for. What is in force is in the triggers tenure_protect_*: Protected compares the two.
CREATE TABLE tenure_protected (
	tbl  TEXT PRIMARY KEY COLLATE NOCASE,
	name TEXT NOT NULL -- the expression
) STRICT, WITHOUT ROWID;

UPDATE tenure_schema SET version = 2;
`
