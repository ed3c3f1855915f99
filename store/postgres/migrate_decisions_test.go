package postgres

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
)

// decision says who may execute a function of the schema.
type decision string

const (
	forUsers     decision = "tenure_user"
	forOperators decision = "tenure_operator"
	forOwner     decision = "tenure_owner" // on purpose for nobody else: it concerns the whole authority
	forEverybody decision = "PUBLIC"       // called by the triggers of protected tables, as whoever writes
	internal     decision = "-"            // called by the schema's functions, which run as the owner
)

// decisions lists every function of the schema by name: all of one name are for the same. A new one without a row fails.
func decisions() map[decision][]string {
	return map[decision][]string{
		forUsers: {
			"new_id", "authority_id", "schema_version", "issued",
			"open_session", "renew", "close_session", "acquire", "release", "lease_of", "leases",
			"claim_text", "claim_parse", "verify", "verify_bounded", "enter", "admit", "allow", "report_ahead",
			"present", "protect", "protect_script", "unprotect", "protections", "guard_body", "guard_function", "check_table", "check_rights", "check_expression", "fail",
			// For the Go store.
			"enter_incarnation", "session_open", "session_renew", "session_close", "unbroken_id", "free_closed", "mend_sequence",
			"acquire_one", "acquire_many", "acquire_rows", "release_one", "release_many", "release_rows", "release_absent",
			"op_submit", "op_get", "op_cancel", "op_respond", "op_claim", "op_renew", "op_complete", "op_expire", "op_due", "op_inquired", "op_undone", "op_list", "op_stats",
			"op_submit_many", "op_claim_many", "op_complete_many", "op_mend_sequence",
			"hold_place", "hold_extend", "hold_confirm", "hold_release", "hold_get", "hold_list", "item_stock", "items", "hold_place_many", "hold_confirm_many", "hold_within", "hold_busy",
			"outbox_append", "outbox_append_many", "outbox_claim", "outbox_claim_many", "outbox_settle", "outbox_ready", "outbox_list", "outbox_get", "outbox_topics", "inbox_once", "inbox_take",
		},
		forEverybody: {"guard", "family", "guard_triggers", "guard_always", "guard_args"},
		forOperators: {"lease_revoke", "revoke", "prune", "op_resolve", "op_prune", "hold_prune", "outbox_pause", "outbox_retry", "outbox_replay", "outbox_prune", "inbox_prune"},
		forOwner:     {"epoch_raise", "authority_new"},
		internal: {
			"timeline", "how", "over_by", "check_name", "check_id", "durable", "read_committed", "jump",
			"settle_session", "sweep", "held_among", "lock_names", "judge", "tell_over", "grants", "take", "bury", "make_names", "lock_others", "lock_session", "release_over",
			"leases_where", "check_claim", "refuse", "foreign_claim", "claim_ahead", "verify_long", "raise_mark", "bound_by", "check_resource",
			"check_duration", "check_names", "enter_incarnation_if_new", "begin_acquire", "acquire_row", "bury_row", "make_row", "begin_release",
			"guard_all", "unguarded", "refuse_row", "protect_new", "check_issued",
			"op_state", "op_known", "op_step", "op_may_begin", "op_tries", "op_order", "op_invalid", "op_check_text", "op_check_delay", "op_check_answer", "op_check_submission", "op_check_completion", "op_check_kinds",
			"op_not_found", "op_refuse", "op_cut", "op_known_before", "op_lock", "op_save", "op_unblock", "op_contradict", "op_same", "op_report", "op_find", "op_tell", "op_shares", "op_begin", "op_let_be", "op_complete_open",
			"op_old", "op_forget_beside", "op_controls", "op_fit",
			"hold_state_text", "hold_actor_key", "hold_not_found", "hold_over", "hold_mismatch", "hold_refuse", "hold_state", "hold_tell", "hold_lock", "hold_free", "hold_end", "hold_judge", "hold_again",
			"hold_check_lines", "hold_check_many", "hold_regain",
			"outbox_lock_of", "outbox_wake", "outbox_check", "outbox_same", "outbox_lane_of", "outbox_note", "outbox_notice", "outbox_open_topics", "outbox_check_claim", "outbox_fit", "outbox_lane_look", "outbox_lane_due",
			"outbox_give_up", "outbox_check_settle", "outbox_settle_each", "outbox_release", "outbox_state", "outbox_tell", "outbox_pending", "outbox_move",
		},
	}
}

// qualified are those that run as their owner without a pinned search path, for what it costs in each call: every name, type and operator
// in them is qualified, which TestHostileSearchPath tries.
func qualified() []string {
	return []string{
		"tenure.verify(uuid,text,uuid,bigint)", "tenure.verify_bounded(uuid,text,uuid,bigint)", "tenure.enter(text,uuid,text,uuid,bigint)", "tenure.admit(text,uuid,text,uuid,bigint)",
		"tenure.acquire_one(uuid,uuid,uuid,text,interval)", "tenure.release_one(uuid,uuid,uuid,text)", "tenure.guard(oid,text[])",
	}
}

// functions is each function of the schema, and what must be known of it.
type function struct {
	Name, Signature string
	Public          bool   // PUBLIC may execute it
	Granted         string // roles beside its owner
	Definer, Pinned bool   // runs as its owner; with a fixed search path, pg_temp last
	Reads           bool   // names a table or the sequence of the schema
}

func functions(t testing.TB, conn *pgx.Conn) []function {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT p.proname, p.oid::regprocedure::text,
			EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0),
			coalesce((SELECT string_agg(pg_get_userbyid(a.grantee), ' ' ORDER BY pg_get_userbyid(a.grantee)) FROM aclexplode(p.proacl) a WHERE a.grantee NOT IN (0, p.proowner)), ''),
			p.prosecdef, coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false),
			p.prosrc ~ 'tenure\.(authority|unbroken|token|session|lease|ended|ahead|mark|migration|operation|attempt|attempts|conflict|submission|hold|hold_line|item|outbox_(?:turn|message|queue|line|lane|later|ended|dead|topic)|inbox_note)\M(?!\()'
		FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace ORDER BY 2`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// undecided says what is wrong with the rights in a database.
func undecided(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	var found []string
	seen := map[string]bool{}
	byName := map[string]decision{}
	for who, names := range decisions() {
		for _, name := range names {
			byName[name] = who
		}
	}
	for _, f := range functions(t, conn) {
		who, known := byName[f.Name]
		seen[f.Name] = true
		granted := map[decision]string{forUsers: "tenure_user", forOperators: "tenure_operator"}[who]
		switch {
		case !known:
			found = append(found, f.Signature+": nobody has decided who may execute it")
		case f.Granted != granted:
			found = append(found, fmt.Sprintf("%s: executed by %q, decided was %q", f.Signature, f.Granted, who))
		}
		if f.Public != (who == forEverybody) {
			found = append(found, fmt.Sprintf("%s: PUBLIC may execute it: %t", f.Signature, f.Public))
		}
		if f.Definer && !f.Pinned && !slices.Contains(qualified(), f.Signature) {
			found = append(found, f.Signature+": SECURITY DEFINER without a pinned search path")
		}
		if granted != "" && f.Reads && !f.Definer {
			found = append(found, f.Signature+": touches a table, which its callers may not")
		}
	}
	for name := range byName {
		if !seen[name] {
			found = append(found, name+": decided, and not there")
		}
	}
	slices.Sort(found)
	return append(found, openRelations(t, conn)...)
}

// openRelations are tables, sequences and the schema itself where somebody has a right who is not to have it.
func openRelations(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname || ': ' || coalesce(pg_get_userbyid(nullif(a.grantee, 0)), 'PUBLIC') || ' has ' || a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.relnamespace = 'tenure'::regnamespace AND a.grantee <> c.relowner
		UNION ALL
		SELECT 'schema: ' || coalesce(pg_get_userbyid(nullif(a.grantee, 0)), 'PUBLIC') || ' has ' || a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a
		WHERE n.nspname = 'tenure' AND a.grantee <> n.nspowner AND NOT (a.privilege_type = 'USAGE' AND a.grantee IN (0, 'tenure_user'::regrole, 'tenure_operator'::regrole))
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEveryFunctionIsDecided: PUBLIC may execute what triggers call and nothing else, what runs as its owner has a pinned search path, and each function is granted
// as decided, or internal.
func TestEveryFunctionIsDecided(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	mustMigrate(t, conn, MigrateOptions{})
	for _, wrong := range undecided(t, conn) {
		t.Error(wrong)
	}
	// Each break is found.
	for sql, want := range map[string]string{
		"CREATE FUNCTION tenure.fresh() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION tenure.fresh() FROM PUBLIC": "nobody has decided",
		"GRANT EXECUTE ON FUNCTION tenure.sweep() TO PUBLIC":                                                                       "PUBLIC may execute it: true",
		"GRANT EXECUTE ON FUNCTION tenure.prune(interval, int) TO tenure_user":                                                     "executed by",
		"REVOKE EXECUTE ON FUNCTION tenure.verify(text) FROM tenure_user":                                                          "decided was",
		"ALTER FUNCTION tenure.epoch_raise(bigint) RESET search_path":                                                              "without a pinned search path",
		"ALTER FUNCTION tenure.epoch_raise(bigint) SET search_path = public":                                                       "without a pinned search path",
		"ALTER FUNCTION tenure.authority_id() SECURITY INVOKER":                                                                    "touches a table",
		"DROP FUNCTION tenure.new_id()":                                                                                            "and not there",
		"GRANT SELECT ON tenure.mark TO tenure_user":                                                                               "mark: tenure_user has SELECT",
		"GRANT USAGE ON SEQUENCE tenure.token TO PUBLIC":                                                                           "token: PUBLIC has USAGE",
		"GRANT CREATE ON SCHEMA tenure TO tenure_user":                                                                             "schema: tenure_user has CREATE",
	} {
		must(t, conn, "BEGIN", sql)
		if found := strings.Join(undecided(t, conn), "\n"); !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", sql, found, want)
		}
		must(t, conn, "ROLLBACK")
	}
}

// catalog is the definition of everything in the schema.
func catalog(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') || pg_get_userbyid(p.proowner) FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace
		UNION ALL SELECT concat_ws(' ', c.relname, c.relkind, c.relpersistence, c.relacl, c.reloptions, pg_get_userbyid(c.relowner), a.attname, format_type(a.atttypid, a.atttypmod),
				a.attnotnull, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = 'tenure'::regnamespace
		UNION ALL SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'tenure'::regnamespace
		UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'tenure'::regnamespace
		UNION ALL SELECT n.nspacl::text || pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'tenure'
		UNION ALL SELECT 'version ' || version FROM tenure.migration
		UNION ALL SELECT 'authority ' || count(*) FROM tenure.authority
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestScriptByPsql: the script, run by psql as it is or inside a transaction, once or twice, leaves what Migrate leaves.
func TestScriptByPsql(t *testing.T) {
	s := testdb.Shared(t)
	migrated := connect(t, s.URL(s.Database(t)))
	mustMigrate(t, migrated, MigrateOptions{})
	want := catalog(t, migrated)
	if len(want) < 100 {
		t.Fatalf("only %d entries in the catalogue", len(want))
	}
	for name, args := range map[string][]string{"as it is": nil, "in a transaction": {"--single-transaction"}} {
		t.Run(name, func(t *testing.T) {
			database := s.Database(t)
			for range 2 {
				cmd := exec.CommandContext(t.Context(), "psql", append(args, "--no-psqlrc", "--quiet", "--dbname", s.URL(database))...)
				cmd.Stdin = strings.NewReader(Script())
				if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
					t.Fatalf("psql: %v\n%s", err, out)
				}
			}
			got := catalog(t, connect(t, s.URL(database)))
			if !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("by psql:\n%s\nby Migrate:\n%s", got[i], want[i])
					}
				}
				t.Fatalf("by psql %d entries, by Migrate %d", len(got), len(want))
			}
		})
	}
}

// hostile is a schema that shadows what careless SQL takes from pg_catalog. Whoever uses a thing of it fails with SQLSTATE EVIL0.
const hostile = `
CREATE SCHEMA evil;
CREATE FUNCTION evil.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'EVIL0', MESSAGE = 'the caller''s search path was used'; END $$;
DO $do$
DECLARE o record;
BEGIN
	-- Every operator between two values of the types that the schema has.
	FOR o IN SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS t FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'
		AND ARRAY[oprleft, oprright] <@ ARRAY['uuid', 'text', 'int8', 'int4', 'int2', 'float8', 'interval', 'timestamptz', 'bool', 'numeric', 'jsonb', 'uuid[]', 'text[]', 'anyarray', 'tid', 'bit', 'pg_lsn', 'regclass', 'oid']::regtype[]::oid[]
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', 'op' || md5(o::text), o.l, o.r, o.t, 'BEGIN PERFORM evil.caught(); RETURN NULL; END');
			EXECUTE format('CREATE OPERATOR evil.%s (FUNCTION = evil.%I, LEFTARG = %s, RIGHTARG = %s)', o.oprname, 'op' || md5(o::text), o.l, o.r);
		EXCEPTION WHEN OTHERS THEN NULL; -- what cannot be shadowed needs no care
		END;
	END LOOP;
	FOR o IN SELECT proname, pg_get_function_identity_arguments(oid) AS args, prorettype::regtype AS t, proretset AS s FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND proname IN ('clock_timestamp', 'now', 'current_setting', 'set_config', 'ceil', 'floor', 'date_part',
			'extract', 'coalesce', 'nextval', 'setval', 'format', 'quote_ident', 'octet_length', 'starts_with', 'unnest', 'cardinality', 'array_length', 'make_interval',
			'pg_postmaster_start_time', 'jsonb_build_object', 'gen_random_uuid', 'generate_series', 'string_agg', 'lower', 'substr', 'replace', 'split_part')
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', o.proname, o.args, CASE WHEN o.s THEN 'SETOF' ELSE '' END, o.t,
				'BEGIN PERFORM evil.caught(); RETURN' || CASE WHEN o.s THEN '' ELSE ' NULL' END || '; END');
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END $do$;
CREATE DOMAIN evil.uuid AS pg_catalog.uuid CHECK (evil.caught());
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.caught());
CREATE DOMAIN evil.timestamptz AS pg_catalog.timestamptz CHECK (evil.caught());
CREATE DOMAIN evil.jsonb AS pg_catalog.jsonb CHECK (evil.caught());
CREATE DOMAIN evil.interval AS pg_catalog.interval CHECK (evil.caught());
GRANT USAGE ON SCHEMA evil TO PUBLIC;`

// fencedOnPath acquires, and checks the claim in each way under the given search path.
func fencedOnPath(t testing.TB, conn *pgx.Conn, path string) error {
	t.Helper()
	session, id := value[string](t, conn, `SELECT tenure.new_id()::text`), value[string](t, conn, `SELECT tenure.new_id()::text`)
	must(t, conn, `SELECT tenure.open_session('`+session+`', 'me', '1 minute')`)
	claim := value[string](t, conn, `SELECT claim FROM tenure.acquire($1, $2, ARRAY[$3])`, session, id, id)
	parts := strings.Split(claim, ":")
	args := fmt.Sprintf(`'%s'::pg_catalog.uuid, '%s'::pg_catalog.text, '%s'::pg_catalog.uuid, %s`, parts[1], parts[4], parts[2], parts[3])
	var ids [4]string
	for i := range ids {
		ids[i] = value[string](t, conn, `SELECT tenure.new_id()::text`)
	}
	own := func(i int, name string) string {
		return "'" + session + "', '00000000-0000-0000-0000-000000000000', '" + ids[i] + "', '" + name + "'"
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = "+path); err != nil {
		return err
	}
	presented := `{"` + parts[4] + `": "` + parts[2] + ":" + parts[3] + `"}`
	if _, err := tx.Exec(t.Context(), "SELECT pg_catalog.set_config('tenure.presented', '"+presented+"', true)"); err != nil {
		return err
	}
	for _, call := range []string{
		"guard('pg_catalog.pg_class'::pg_catalog.regclass, ARRAY['" + parts[4] + "'])",
		"acquire_one(" + own(0, "a") + ", NULL)", "acquire_one(" + own(1, "a") + ", NULL)", // the second is refused
		"acquire_one(" + own(2, "b") + ", '1 minute')", "release_one(" + own(2, "b") + ")", "acquire_one(" + own(3, "b") + ", NULL)",
		"verify(" + args + ")", "verify_bounded(" + args + ")", "enter('file'::pg_catalog.text, " + args + ")", "enter('file'::pg_catalog.text, " + args + ")",
		"admit('file'::pg_catalog.text, " + args + ")", "admit('other'::pg_catalog.text, " + args + ")"} {
		if _, err := tx.Exec(t.Context(), "SELECT tenure."+call, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	return nil
}

// TestHostileSearchPath: what runs as the owner takes nothing from the caller's search path; a function with one operator unqualified does.
func TestHostileSearchPath(t *testing.T) {
	admin, conn := asRole(t, "tenure_user")
	must(t, admin, hostile)
	for _, path := range []string{"evil, pg_catalog", "pg_temp, evil, pg_catalog"} {
		if err := fencedOnPath(t, conn, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, signature := range qualified() {
		body := value[string](t, admin, `SELECT pg_get_functiondef($1::regprocedure)`, signature)
		broken := strings.Replace(body, "OPERATOR(pg_catalog.=)", "=", 1)
		if broken == body {
			t.Fatalf("%s has no qualified operator", signature)
		}
		must(t, admin, broken)
		if err := fencedOnPath(t, conn, "evil, pg_catalog"); state(err) != "EVIL0" {
			t.Errorf("%s with one operator unqualified: %v", signature, err)
		}
		must(t, admin, body)
	}
}
