package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/internal/testdb"
)

// TestMigrateWithoutSuperuser: CREATEROLE and CREATE on the database are enough, and so is what the error asks an administrator for.
func TestMigrateWithoutSuperuser(t *testing.T) {
	for name, role := range map[string]string{"createrole": "LOGIN CREATEROLE", "createrole noinherit": "LOGIN CREATEROLE NOINHERIT"} {
		t.Run(name, func(t *testing.T) {
			s := testdb.Start(t, testdb.Options{})
			database := s.Database(t)
			admin := connect(t, s.URL(database))
			must(t, admin, "CREATE ROLE deployer "+role, "GRANT CREATE ON DATABASE "+database+" TO deployer", "CREATE ROLE app LOGIN")
			conn := connect(t, s.URLAs("deployer", database))
			first := mustMigrate(t, conn, MigrateOptions{Grant: []string{"app"}})
			second := mustMigrate(t, conn, MigrateOptions{Grant: []string{"app"}})
			if first.From != 0 || second.From != SchemaVersion || second.Authority != first.Authority {
				t.Errorf("got %+v, then %+v", first, second)
			}
			if owner := value[string](t, admin, `SELECT string_agg(DISTINCT pg_get_userbyid(proowner), ',') FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace`); owner != "tenure_owner" {
				t.Errorf("functions belong to %s", owner)
			}
			mustMigrate(t, connect(t, s.URLAs("app", database)), MigrateOptions{}) // nothing to do: tenure_user is enough
			if err := Down(t.Context(), connect(t, s.URLAs("app", database))); state(err) != stateNotAllowed {
				t.Errorf("a plain user takes the schema away: %v", err)
			}
			if err := Down(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMigrateWithoutRights: the error lists what an administrator must run, that is all that is needed, and nothing was changed before.
func TestMigrateWithoutRights(t *testing.T) {
	for name, before := range map[string][]string{
		"no roles":           nil,
		"some roles":         {"CREATE ROLE tenure_owner NOLOGIN", "CREATE ROLE tenure_user NOLOGIN"},
		"roles and schema":   {"CREATE ROLE tenure_owner", "CREATE ROLE tenure_user", "CREATE ROLE tenure_operator", "CREATE SCHEMA tenure AUTHORIZATION tenure_owner"},
		"createrole, no use": {`ALTER ROLE "a deployer" CREATEROLE`},
	} {
		t.Run(name, func(t *testing.T) {
			s := testdb.Start(t, testdb.Options{})
			database := s.Database(t)
			admin := connect(t, s.URL(database))
			must(t, admin, `CREATE ROLE "a deployer" LOGIN`)
			must(t, admin, before...)
			count := value[int](t, admin, roles)
			conn := connect(t, s.URLAs("a deployer", database))
			_, err := Migrate(t.Context(), conn, MigrateOptions{})
			_, todo, found := strings.Cut(fmt.Sprint(err), "An administrator must run once: ")
			var pg *pgconn.PgError
			if !found || !errors.As(err, &pg) || pg.Code != stateNotAllowed {
				t.Fatalf("got %v", err)
			}
			if n := value[int](t, admin, roles); n != count {
				t.Errorf("%d roles after the refusal, %d before", n, count)
			}
			must(t, admin, todo)
			mustMigrate(t, conn, MigrateOptions{})
			if err := Down(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGrant: a role's name is taken as it is, and one that is not there stops the migration before anything is changed.
func TestGrant(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	const odd = `Odd "role"; DROP`
	must(t, conn, `DROP ROLE IF EXISTS "Odd ""role""; DROP"`, `CREATE ROLE "Odd ""role""; DROP"`)
	t.Cleanup(func() { dropRoles(t, s, `"Odd ""role""; DROP"`) })
	for _, missing := range []string{"nobody_of_that_name", "public", "", `odd "role"; drop`} {
		if _, err := Migrate(t.Context(), conn, MigrateOptions{Grant: []string{odd, missing}}); err == nil || !strings.Contains(err.Error(), "there is no role") {
			t.Errorf("%q: %v", missing, err)
		}
	}
	if n := value[int](t, conn, schemas); n != 0 {
		t.Error("a refused grant left a schema")
	}
	for range 2 {
		mustMigrate(t, conn, MigrateOptions{Grant: []string{odd}})
	}
	if !value[bool](t, conn, `SELECT pg_has_role($1, 'tenure_user', 'MEMBER')`, odd) {
		t.Error("not granted")
	}
}

// dropRoles is for a server that other tests share.
func dropRoles(t *testing.T, s *testdb.Server, names ...string) {
	t.Helper()
	ctx := context.Background() // the test's own has ended when it cleans up
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(ctx)
	for _, name := range names {
		if _, err := conn.Exec(ctx, "DROP ROLE IF EXISTS "+name); err != nil {
			t.Error(err)
		}
	}
}

// asRole is a database with the schema, and connections to it as an administrator and as a role that is a member of group.
func asRole(t *testing.T, group string) (admin, conn *pgx.Conn) {
	t.Helper()
	s := testdb.Shared(t)
	database := s.Database(t)
	admin = connect(t, s.URL(database))
	mustMigrate(t, admin, MigrateOptions{})
	role := "member_" + database[:strings.IndexByte(database, '_')]
	must(t, admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { dropRoles(t, s, role) })
	if group != "" {
		must(t, admin, "GRANT "+group+" TO "+role)
	}
	return admin, connect(t, s.URLAs(role, database))
}

// refusedRights runs statements that the role must not be allowed.
func refusedRights(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); state(err) != stateNotAllowed {
			t.Errorf("%s: got %v, want SQLSTATE 42501", sql, err)
		}
	}
}

// tables are attempts on every table.
func tables(t *testing.T, admin *pgx.Conn) []string {
	t.Helper()
	rows, err := admin.Query(t.Context(), `SELECT relname::text FROM pg_class WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'r'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 7 {
		t.Fatalf("%q, %v", names, err)
	}
	attempts := []string{"SELECT nextval('tenure.token')", "SELECT setval('tenure.token', 1)", "CREATE TABLE tenure.mine (x int)"}
	for _, name := range names {
		attempts = append(attempts, "SELECT count(*) FROM tenure."+name, "DELETE FROM tenure."+name, "TRUNCATE tenure."+name)
	}
	return attempts
}

// TestUserRights: tenure_user acquires and fences, and neither touches a table nor revokes, prunes or raises the epoch.
func TestUserRights(t *testing.T) {
	admin, conn := asRole(t, "tenure_user")
	session, id := value[string](t, conn, `SELECT tenure.new_id()::text`), value[string](t, conn, `SELECT tenure.new_id()::text`)
	if got := value[string](t, conn, `SELECT outcome FROM tenure.open_session($1, 'me', '1 minute')`, session); got != "open" {
		t.Fatalf("open: %s", got)
	}
	claim := value[string](t, conn, `SELECT claim FROM tenure.acquire($1, $2, ARRAY['job'])`, session, id)
	must(t, conn, "BEGIN", "SELECT tenure.verify('"+claim+"')", "SELECT tenure.enter('file', '"+claim+"')", "SELECT tenure.admit('file', '"+claim+"')", "COMMIT")
	for _, c := range []struct{ sql, want string }{
		{`SELECT outcome FROM tenure.renew('` + session + `')`, "renewed"},
		{`SELECT name || ' ' || held FROM tenure.leases()`, "job true"},
		{`SELECT tenure.schema_version()::text`, fmt.Sprint(SchemaVersion)},
		{`SELECT outcome FROM tenure.release('` + session + `', '` + id + `', ARRAY['job'])`, "released"},
		{`SELECT outcome FROM tenure.close_session('` + session + `')`, "closed"},
	} {
		if got := value[string](t, conn, c.sql); got != c.want {
			t.Errorf("%s: %s, want %s", c.sql, got, c.want)
		}
	}
	refusedRights(t, conn, tables(t, admin)...)
	refusedRights(t, conn, `SELECT tenure.revoke('job', 1, 'x')`, `SELECT tenure.lease_revoke('job', 1, 'x')`, `SELECT tenure.prune('1 hour')`,
		`SELECT tenure.epoch_raise(0)`, `SELECT tenure.authority_new()`, `SELECT tenure.jump(now())`, `SET ROLE tenure_owner`, `SET ROLE tenure_operator`,
		`DROP FUNCTION tenure.verify(text)`, `GRANT tenure_user TO CURRENT_USER`)
}

// TestOperatorRights: tenure_operator does what a user does, revokes and prunes; the epoch and the tables are the owner's.
func TestOperatorRights(t *testing.T) {
	admin, conn := asRole(t, "tenure_operator")
	session, id := value[string](t, conn, `SELECT tenure.new_id()::text`), value[string](t, conn, `SELECT tenure.new_id()::text`)
	must(t, conn, `SELECT tenure.open_session('`+session+`', 'me', '1 minute')`)
	token := value[int64](t, conn, `SELECT token FROM tenure.acquire($1, $2, ARRAY['job'])`, session, id)
	if got := value[string](t, conn, `SELECT outcome FROM tenure.revoke('job', $1, 'gone')`, token); got != "revoked" {
		t.Errorf("revoke: %s", got)
	}
	must(t, conn, `SELECT tenure.prune('1 hour')`)
	refusedRights(t, conn, tables(t, admin)...)
	refusedRights(t, conn, `SELECT tenure.epoch_raise(0)`, `SELECT tenure.authority_new()`, `SET ROLE tenure_owner`)
}

// TestStrangerRights: a role without a grant, as everybody is through PUBLIC, may not even look; what it may call refuses it.
func TestStrangerRights(t *testing.T) {
	admin, conn := asRole(t, "")
	refusedRights(t, conn, tables(t, admin)...)
	refusedRights(t, conn, `SELECT tenure.new_id()`, `SELECT tenure.authority_id()`, `SELECT tenure.schema_version()`, `SELECT tenure.leases()`)
	if _, err := conn.Exec(t.Context(), `SELECT tenure.guard('pg_class'::regclass, ARRAY['n'])`); state(err) != stateRow {
		t.Errorf("the guard of protected tables, to a stranger: %v", err)
	}
	if _, err := ReadAuthority(t.Context(), conn); state(err) != stateNotAllowed || !strings.Contains(err.Error(), "--grant") {
		t.Errorf("the authority, to a stranger: %v", err)
	}
}

// TestOwnerRights: a member of tenure_owner raises the epoch and gives the authority another id; marks go with it, claims do not.
func TestOwnerRights(t *testing.T) {
	_, conn := asRole(t, "tenure_owner")
	before, err := ReadAuthority(t.Context(), conn)
	if err != nil || !before.Known || before.Schema != SchemaVersion || before.Installed.IsZero() {
		t.Fatalf("%+v, %v", before, err)
	}
	was, is, err := NewAuthority(t.Context(), conn)
	if err != nil || was != before.ID || is == was || is.IsZero() {
		t.Fatalf("was %v, is %v, %v; read %v", was, is, err, before.ID)
	}
	after, err := ReadAuthority(t.Context(), conn)
	if err != nil || after.ID != is || after.Issued <= before.Issued {
		t.Errorf("%+v after %+v, %v", after, before, err)
	}
	_, user := asRole(t, "tenure_user")
	if a, err := ReadAuthority(t.Context(), user); err != nil || a.ID.IsZero() || a.Known {
		t.Errorf("to a user: %+v, %v", a, err)
	}
	if _, _, err := NewAuthority(t.Context(), user); state(err) != stateNotAllowed || !strings.Contains(err.Error(), "tenure_owner") {
		t.Errorf("a user gives the authority another id: %v", err)
	}
	s := testdb.Shared(t)
	empty := connect(t, s.URL(s.Database(t)))
	_, err = ReadAuthority(t.Context(), empty)
	_, _, errNew := NewAuthority(t.Context(), empty)
	if !errors.Is(err, ErrNoSchema) || !errors.Is(errNew, ErrNoSchema) {
		t.Errorf("without a schema: %v; %v", err, errNew)
	}
}
