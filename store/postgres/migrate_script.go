package postgres

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// step is one version of the schema, or of its fence half.
type step struct {
	version int
	half    bool
	up      []string // files, in order; run as tenure_owner
	down    string   // statements that lead back to the version before; run as tenure_owner
}

// steps are all versions, in order. The next one is one more entry; an entry that was released never changes.
func steps() []step {
	return []step{{
		version: 1,
		up: []string{
			"0000_version.sql", "both_1_base.sql", "0001_tables.sql", "both_2_mark.sql", "0002_core.sql", "0003_session.sql", "0004_acquire.sql", "0005_release.sql",
			"0006_operator.sql", "0007_fence.sql", "both_3_claim.sql", "0008_people.sql", "0009_present.sql", "both_4_row.sql", "both_5_protect.sql", "0010_roles.sql", "0011_authority.sql",
		},
		down: "DROP SCHEMA tenure CASCADE;",
	}, {
		version: 2,
		up:      []string{"0012_operation.sql", "0013_operation_rules.sql", "0014_operation_submit.sql", "0015_operation_queue.sql", "0016_operation_desk.sql", "0017_operation_roles.sql"},
		down:    operationDown,
	}, {
		version: 3,
		up:      []string{"0018_hold.sql", "0019_hold_rules.sql", "0020_hold_calls.sql", "0021_hold_office.sql", "0022_hold_many.sql", "0023_hold_roles.sql", "0024_hold_wait.sql"},
		down:    holdDown,
	}, {
		version: 4,
		up:      []string{"0025_outbox.sql", "0026_outbox_append.sql", "0027_outbox_claim.sql", "0028_outbox_relay.sql", "0029_outbox_office.sql", "0030_inbox.sql", "0031_outbox_roles.sql"},
		down:    outboxDown,
	}, {
		version: 5,
		up:      []string{"0032_operation_bounds.sql"},
		down:    boundsDown(),
	}, {
		version: 6,
		up:      []string{"0033_places.sql"},
		down:    placesDown(),
	}}
}

// placesDown brings back the batches of version 1, which know no places, where leases are; the fence half has none.
func placesDown() string {
	const acquire = "tenure.acquire_many(uuid, uuid, uuid[], text[], interval[])"
	return `DO $down$ BEGIN
	IF to_regprocedure('tenure.release_many(uuid, uuid, uuid[], text[], tid[])') IS NOT NULL THEN
		DROP FUNCTION ` + acquire + `, tenure.release_many(uuid, uuid, uuid[], text[], tid[]);
		EXECUTE $old$` + before("0004_acquire.sql", "acquire_many") + before("0005_release.sql", "release_many") + `$old$;
		REVOKE ALL ON FUNCTION ` + acquire + `, tenure.release_many(uuid, uuid, uuid[], text[]) FROM PUBLIC;
		GRANT EXECUTE ON FUNCTION ` + acquire + `, tenure.release_many(uuid, uuid, uuid[], text[]) TO tenure_user;
	END IF;
END $down$;`
}

// boundsDown brings back the functions that version 5 has replaced, where operations are; the fence half has none.
func boundsDown() string {
	old := before("0013_operation_rules.sql", "op_check_text") + before("0014_operation_submit.sql", "op_submit_many") + before("0015_operation_queue.sql", "op_claim_many") +
		before("0016_operation_desk.sql", "op_due")
	return `DO $down$ BEGIN
	IF to_regtype('tenure.op_job') IS NOT NULL THEN
		EXECUTE $old$` + old + `$old$;
		ALTER FUNCTION tenure.op_list RESET standard_conforming_strings;
	END IF;
END $down$;
DROP FUNCTION IF EXISTS tenure.op_controls(), tenure.op_fit(int[]);`
}

// before is what brings a function back as an earlier version's file has it, whose body ends with the first END $$.
func before(name, function string) string {
	const create, end = "CREATE FUNCTION tenure.", "\nEND $$;\n"
	_, text, _ := strings.Cut(file(name), create+function+"(")
	text, _, _ = strings.Cut(text, end)
	return "CREATE OR REPLACE FUNCTION tenure." + function + "(" + text + end
}

// operationDown takes operations away, and nothing else. The fence half has none: [Down] is for it too.
const operationDown = `DROP VIEW IF EXISTS tenure.attempts;
DO $down$
DECLARE v_function regprocedure;
BEGIN
	FOR v_function IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname LIKE 'op\_%' LOOP
		EXECUTE 'DROP FUNCTION ' || v_function;
	END LOOP;
END $down$;
DROP TYPE IF EXISTS tenure.op_record, tenure.op_head, tenure.op_job;
DROP TABLE IF EXISTS tenure.operation, tenure.attempt, tenure.conflict;
DROP SEQUENCE IF EXISTS tenure.submission;`

// holdDown takes holds away, and nothing else.
const holdDown = `DO $down$
DECLARE v_function regprocedure;
BEGIN
	FOR v_function IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND (p.proname LIKE 'hold\_%' OR p.proname IN ('items', 'item_stock')) LOOP
		EXECUTE 'DROP FUNCTION ' || v_function;
	END LOOP;
END $down$;
DROP TYPE IF EXISTS tenure.hold_record, tenure.hold_refusal;
DROP TABLE IF EXISTS tenure.item, tenure.hold, tenure.hold_line;`

// outboxDown takes outbox and inbox away, and nothing else.
const outboxDown = `DO $down$
DECLARE v_function regprocedure;
BEGIN
	FOR v_function IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND (p.proname LIKE 'outbox\_%' OR p.proname LIKE 'inbox\_%') LOOP
		EXECUTE 'DROP FUNCTION ' || v_function;
	END LOOP;
END $down$;
DROP TYPE IF EXISTS tenure.outbox_delivery, tenure.outbox_info;
DROP TABLE IF EXISTS tenure.outbox_message, tenure.outbox_queue, tenure.outbox_line, tenure.outbox_lane, tenure.outbox_later, tenure.outbox_claim, tenure.outbox_ended, tenure.outbox_dead, tenure.outbox_topic,
	tenure.outbox_pause, tenure.inbox_note;
DROP TYPE IF EXISTS tenure.outbox_failure;
DROP SEQUENCE IF EXISTS tenure.outbox_turn;`

// halfSteps are all versions of the fence half: what a database needs whose resources are guarded by an authority elsewhere.
func halfSteps() []step {
	return []step{{
		version: 1, half: true,
		up: []string{
			"0000_version.sql", "both_1_base.sql", "both_2_mark.sql", "both_3_claim.sql", "half_1_present.sql", "both_4_row.sql", "both_5_protect.sql", "half_2_roles.sql",
		},
		down: "DROP SCHEMA tenure CASCADE;",
	}, {
		version: 2, half: true,
		up:   []string{"half_3_version.sql"},
		down: "SELECT 1;",
	}, {
		version: 3, half: true,
		up:   []string{"half_4_version.sql"},
		down: "SELECT 1;",
	}, {
		version: 4, half: true,
		up:   []string{"half_5_version.sql"},
		down: "SELECT 1;",
	}, {
		version: 5, half: true,
		up:   []string{"half_6_version.sql"},
		down: "SELECT 1;",
	}, {
		version: 6, half: true,
		up:   []string{"half_7_version.sql"},
		down: "SELECT 1;",
	}}
}

// prepareFile runs before each version, as the migrating role.
const prepareFile = "0000_schema.sql"

// lockKey is of the advisory lock under which schema and grants are changed: "tenure" in ASCII.
const lockKey = 0x74656e757265

// lockBound is how long a migration waits for another one, and for each lock on a table.
const lockBound = "60s"

// frame makes a migration one statement: whoever runs it, in a transaction or not, gets all of it or nothing, and gets his
// settings back. The advisory lock is the transaction's, so that it also holds behind a pooler that
// changes the server between transactions, and is never left behind there.
const frame = `DO $tenure_frame$
DECLARE
	v_role   text := current_setting('role');
	v_path   text := current_setting('search_path');
	v_commit text := current_setting('synchronous_commit');
	v_wait   text := current_setting('lock_timeout');
	v_there  boolean;
	v_have   int := 0;
BEGIN
	PERFORM set_config('search_path', 'pg_catalog, pg_temp', true), set_config('lock_timeout', '@BOUND@', true);
	IF v_commit IN ('off', 'local') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	BEGIN
		PERFORM pg_advisory_xact_lock(@KEY@);
	EXCEPTION WHEN lock_not_available THEN
		RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = 'another migration of this database has not ended within @BOUND@',
			HINT = 'Nothing was changed. pg_locks shows who holds advisory lock @KEY@; run this again when it has ended.';
	END;
	v_there := EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = 'tenure');
	IF v_there AND NOT (
		EXISTS (SELECT 1 FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
			WHERE n.nspname = 'tenure' AND pg_get_userbyid(n.nspowner) = 'tenure_owner' AND c.relname = 'migration')
		OR EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = 'tenure' AND pg_get_userbyid(n.nspowner) = 'tenure_owner' -- made for it, and empty
			AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid) AND NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.pronamespace = n.oid))) THEN
		RAISE EXCEPTION USING ERRCODE = '42P06', MESSAGE = 'there is a schema "tenure" that Tenure has not made',
			HINT = 'Nothing was changed. Rename that schema, or use another database.';
	END IF;
@BODY@
	PERFORM set_config('role', v_role, true), set_config('search_path', v_path, true), set_config('synchronous_commit', v_commit, true),
		set_config('lock_timeout', v_wait, true), set_config('tenure.migrated_from', v_have::text, true);
END $tenure_frame$;
`

const upBody = `	EXECUTE $tenure_prepare$
@PREPARE@
$tenure_prepare$;
	IF NOT v_there THEN
		CREATE SCHEMA tenure AUTHORIZATION tenure_owner;
	END IF;
	PERFORM set_config('role', 'tenure_owner', true);
	IF EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'tenure' AND c.relname = 'migration') THEN
		v_have := (SELECT coalesce(max(m.version), 0) FROM tenure.migration m);
	END IF;
	IF v_have > 0 AND (to_regclass('tenure.authority') IS NULL) <> @HALF@ THEN
		RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = CASE WHEN @HALF@ THEN 'this database has the whole schema, with an authority of its own' ELSE 'this database has the fence half of the schema alone' END,
			HINT = CASE WHEN @HALF@ THEN 'Nothing was changed. The whole has all that the half has.' ELSE 'Nothing was changed. Protected tables here go by the marks of an authority elsewhere; take the half away (migrate --down) before this database becomes one.' END;
	END IF;
	IF v_have < @VERSION@ THEN
		EXECUTE $tenure_up$
@UP@
INSERT INTO tenure.migration (version) VALUES (@VERSION@);
$tenure_up$;
	END IF;`

const downBody = `	IF EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'tenure' AND c.relname = 'migration') THEN
		PERFORM set_config('role', 'tenure_owner', true);
		v_have := (SELECT coalesce(max(m.version), 0) FROM tenure.migration m);
	END IF;
	IF v_have = @VERSION@ AND EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgname = 'tenure_guard_insert') THEN
		RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = 'tables are protected by this schema, and could not be written without it: '
			|| (SELECT string_agg(t.tgrelid::regclass::text, ', ' ORDER BY t.tgrelid::regclass::text) FROM pg_trigger t WHERE t.tgname = 'tenure_guard_insert'),
			HINT = 'Nothing was changed. Take the protection away first: tenure protect TABLE --remove.';
	END IF;
	IF v_have = @VERSION@ THEN
		EXECUTE $tenure_down$
@DOWN@
$tenure_down$;
	END IF;`

// upScript applies the version where it is missing. In its transaction, the setting tenure.migrated_from then says which one was there before.
func (s step) upScript() string {
	var up strings.Builder
	for _, name := range s.up {
		up.WriteString(file(name))
	}
	return fill(upBody, "@PREPARE@", strings.TrimSpace(file(prepareFile)), "@UP@", strings.TrimSpace(up.String()), "@VERSION@", strconv.Itoa(s.version), "@HALF@", strconv.FormatBool(s.half))
}

// downScript takes the version back if it is the latest.
func (s step) downScript() string {
	down := s.down
	if s.version > 1 { // with the first goes the table too
		down += fmt.Sprintf("\nDELETE FROM tenure.migration WHERE version = %d;", s.version)
	}
	return fill(downBody, "@DOWN@", down, "@VERSION@", strconv.Itoa(s.version))
}

// fill puts a body with its values into the frame.
func fill(body string, values ...string) string {
	return strings.NewReplacer("@BODY@", strings.NewReplacer(values...).Replace(body), "@KEY@", strconv.Itoa(lockKey), "@BOUND@", lockBound).Replace(frame)
}

// file is an embedded file. A name that is not there gives text that is no SQL, so that no migration gets past it.
func file(name string) string {
	text, err := schemaFiles.ReadFile("schema/" + name)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

const scriptHeader = `-- Installs Tenure's schema "tenure", or brings it up to date: version %d. The same as "tenure migrate", for tools that keep a project's
-- migrations as SQL (psql, Rails, Alembic, Flyway). It needs no transaction around it and minds none; to run it again changes nothing.
-- The role that runs it is a superuser, or has CREATEROLE and CREATE on the database, or is told what an administrator must run once.
-- Each role that uses Tenure then needs: GRANT tenure_user TO that role.
`

const fenceHeader = `-- Installs the fence half of Tenure's schema "tenure", or brings it up to date: version %d. The same as "tenure migrate --fence-only": what a database
-- needs whose tables are guarded by leases of an authority elsewhere. Otherwise as the whole script.
`

// Script is the SQL of all versions, for psql and for tools that keep migrations as SQL: what [Migrate] runs. Each
// version is one statement, which works inside a transaction and without one; running it again changes nothing. The roles that
// grant names become members of tenure_user; they are taken as they are, and must exist when the script runs.
func Script(grant ...string) string { return script(scriptHeader, steps(), grant) }

// FenceScript is [Script] for the fence half of the schema; see [MigrateOptions].
func FenceScript(grant ...string) string { return script(fenceHeader, halfSteps(), grant) }

func script(header string, all []step, grant []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, header, SchemaVersion)
	for _, s := range all {
		fmt.Fprintf(&b, "\n-- Version %d.\n%s", s.version, s.upScript())
	}
	for _, role := range grant {
		fmt.Fprintf(&b, "\n%s;\n", grantStatement(role))
	}
	return b.String()
}

func grantStatement(role string) string {
	return `GRANT tenure_user TO "` + strings.ReplaceAll(role, `"`, `""`) + `"`
}
