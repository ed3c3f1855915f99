package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
)

// connect opens a connection of the test's own.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// must runs statements that have to succeed.
func must(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// value reads one value.
func value[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func mustMigrate(t testing.TB, conn *pgx.Conn, o MigrateOptions) Migrated {
	t.Helper()
	m, err := Migrate(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	schemas = `SELECT count(*) FROM pg_namespace WHERE nspname = 'tenure'`
	roles   = `SELECT count(*) FROM pg_roles WHERE rolname LIKE 'tenure\_%' AND rolname IN ('tenure_owner', 'tenure_operator', 'tenure_user')`
)

// TestMigrateUpUpDownUp: the second migration changes nothing, down leaves nothing but the roles, and what comes after is another authority.
func TestMigrateUpUpDownUp(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	first := mustMigrate(t, conn, MigrateOptions{})
	if first.From != 0 || first.To != SchemaVersion || first.Authority.IsZero() {
		t.Fatalf("first: %+v", first)
	}
	applied := value[string](t, conn, `SELECT string_agg(version || ' ' || applied_at, ',') FROM tenure.migration`)
	second := mustMigrate(t, conn, MigrateOptions{})
	if second.From != SchemaVersion || second.Authority != first.Authority {
		t.Fatalf("second: %+v after %+v", second, first)
	}
	if _, err := conn.Exec(t.Context(), Script()); err != nil {
		t.Fatalf("the script over an installed schema: %v", err)
	}
	if again := value[string](t, conn, `SELECT string_agg(version || ' ' || applied_at, ',') FROM tenure.migration`); again != applied {
		t.Fatalf("applied %s, then %s", applied, again)
	}
	for range 2 {
		if err := Down(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if n := value[int](t, conn, schemas); n != 0 {
			t.Fatal("down left the schema")
		}
	}
	if n := value[int](t, conn, roles); n != 3 {
		t.Fatalf("down left %d of the cluster's 3 roles", n)
	}
	if third := mustMigrate(t, conn, MigrateOptions{}); third.From != 0 || third.Authority == first.Authority {
		t.Fatalf("after down: %+v, the first was %+v", third, first)
	}
}

// TestMigrationsAtOnce: in one database one does it; in two, which share the roles, each is done once. All succeed.
func TestMigrationsAtOnce(t *testing.T) {
	s := testdb.Start(t, testdb.Options{}) // where the roles do not exist yet
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := map[string][]Migrated{}
	for _, database := range []string{s.Database(t), s.Database(t)} {
		for range 4 {
			conn := connect(t, s.URL(database))
			wg.Go(func() {
				m, err := Migrate(t.Context(), conn, MigrateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				done[database] = append(done[database], m)
			})
		}
	}
	wg.Wait()
	for database, all := range done {
		did := 0
		for _, m := range all {
			if m.From == 0 {
				did++
			}
			if m.Authority != all[0].Authority {
				t.Errorf("%s: two authorities, %v and %v", database, m.Authority, all[0].Authority)
			}
		}
		if did != 1 {
			t.Errorf("%s: %d of 4 did it, want 1: %+v", database, did, all)
		}
	}
}

// TestSecondMigrationWaits: one that begins while another is about to commit waits for it; without the lock it fails.
func TestSecondMigrationWaits(t *testing.T) {
	const lock = "PERFORM pg_advisory_xact_lock("
	up := steps()[0].upScript()
	for name, script := range map[string]string{"as it is": up, "broken: no lock": strings.ReplaceAll(up, lock, "PERFORM abs(")} {
		t.Run(name, func(t *testing.T) {
			s := testdb.Shared(t)
			database := s.Database(t)
			first, second, watch := connect(t, s.URL(database)), connect(t, s.URL(database)), connect(t, s.URL(database))
			must(t, first, "BEGIN", script)
			failed := make(chan error, 1)
			go func() {
				_, err := second.Exec(t.Context(), script)
				failed <- err
			}()
			awaitLocked(t, watch, second)
			must(t, first, "COMMIT")
			err := <-failed
			if broken := script != up; broken != (err != nil) {
				t.Errorf("the second migration: %v", err)
			}
		})
	}
}

// awaitLocked returns when conn's statement waits for a lock.
func awaitLocked(t testing.TB, watch, conn *pgx.Conn) {
	t.Helper()
	pid := conn.PgConn().PID()
	for range 1000 {
		if value[bool](t, watch, `SELECT cardinality(pg_blocking_pids($1)) > 0 FROM pg_sleep(0.01)`, int32(pid)) {
			return
		}
	}
	t.Fatal("it waits for nothing")
}

// TestMigrationWaitIsBounded: a migration that never ends is named, after the bound.
func TestMigrationWaitIsBounded(t *testing.T) {
	s := testdb.Shared(t)
	database := s.Database(t)
	holder, conn := connect(t, s.URL(database)), connect(t, s.URL(database))
	must(t, holder, "SELECT pg_advisory_lock("+fmt.Sprint(lockKey)+")")
	_, err := conn.Exec(t.Context(), strings.ReplaceAll(Script(), lockBound, "50ms"))
	if err = explained("migrate", err); state(err) != stateLockTimeout || !strings.Contains(err.Error(), "another migration of this database has not ended within 50ms") ||
		!strings.Contains(err.Error(), "pg_locks") {
		t.Errorf("got %v", err)
	}
	if n := value[int](t, conn, schemas); n != 0 {
		t.Error("it left a schema")
	}
}

// TestMigrateByVersions: each version is applied and taken back by itself, one that fails leaves those before it.
func TestMigrateByVersions(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	const next = SchemaVersion + 1
	good := step{version: next, up: []string{"0000_version.sql"}, down: "DROP TABLE tenure.next;"}
	broken := step{version: next, up: []string{"0001_tables.sql"}, down: "SELECT 1;"} // its tables are there already
	if _, err := migrate(t.Context(), conn, append(steps(), broken), MigrateOptions{}); state(err) != "42P07" {
		t.Fatalf("a broken next version: %v", err)
	}
	if v, err := Version(t.Context(), conn); v != SchemaVersion || err != nil {
		t.Fatalf("after it: version %d, %v", v, err)
	}
	// The same frame with other statements, as a next version would have them.
	up := strings.Replace(good.upScript(), file("0000_version.sql"), "CREATE TABLE tenure.next (x int);\n", 1)
	must(t, conn, "BEGIN", up)
	if was := value[string](t, conn, `SELECT current_setting('tenure.migrated_from')`); was != fmt.Sprint(SchemaVersion) {
		t.Errorf("migrated from %s", was)
	}
	must(t, conn, "COMMIT", up)
	if _, err := migrate(t.Context(), conn, steps(), MigrateOptions{}); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("an older program migrates: %v", err)
	}
	if err := down(t.Context(), conn, steps()); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("an older program takes down: %v", err)
	}
	if v, err := Version(t.Context(), conn); v != next || err != nil {
		t.Fatalf("after it: version %d, %v", v, err)
	}
	if m, err := migrate(t.Context(), conn, append(steps(), good), MigrateOptions{}); err != nil || m.From != next || m.To != next {
		t.Errorf("up to date: %+v, %v", m, err)
	}
	must(t, conn, good.downScript())
	if v, err := Version(t.Context(), conn); v != SchemaVersion || err != nil {
		t.Fatalf("one step down: version %d, %v", v, err)
	}
	if err := Down(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
}

// TestOperationsAreTakenBackAlone: the second version's way back leaves what the first has made, and its way there leads to the same again.
func TestOperationsAreTakenBackAlone(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	if _, err := migrate(t.Context(), conn, steps()[:1], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := catalog(t, conn)
	if _, err := migrate(t.Context(), conn, steps()[:2], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := catalog(t, conn)
	must(t, conn, steps()[1].downScript())
	if now := catalog(t, conn); !slices.Equal(now, first) {
		t.Errorf("after the way back the schema has other things than the first version: %d and %d", len(now), len(first))
	}
	if _, err := migrate(t.Context(), conn, steps()[:2], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := catalog(t, conn); !slices.Equal(now, second) {
		t.Error("the second version is not what it was")
	}
}

// TestEveryFileIsInAStep: a file that nobody applies would be a promise in the repository alone.
func TestEveryFileIsInAStep(t *testing.T) {
	used := []string{prepareFile}
	for _, all := range [][]step{steps(), halfSteps()} {
		for i, s := range all {
			used = append(used, s.up...)
			if s.version != i+1 {
				t.Errorf("version %d is at place %d", s.version, i)
			}
		}
		if last := all[len(all)-1].version; last != SchemaVersion {
			t.Errorf("the last version is %d, SchemaVersion %d", last, SchemaVersion)
		}
	}
	entries, err := schemaFiles.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	slices.Sort(used)
	used = slices.Compact(used) // both halves have some
	if !slices.Equal(used, there) {
		t.Errorf("steps use %q, the folder holds %q", used, there)
	}
	for _, tag := range []string{"$tenure_", "@PREPARE@", "@UP@"} {
		for _, name := range there {
			if strings.Contains(file(name), tag) {
				t.Errorf("%s contains %s, which the frame uses", name, tag)
			}
		}
	}
}

// TestMigrateRefuses: where Tenure cannot work nothing is changed, and the error says what was found.
func TestMigrateRefuses(t *testing.T) {
	s := testdb.Shared(t)
	ctx := t.Context()
	t.Run("foreign schema", func(t *testing.T) {
		conn := connect(t, s.URL(s.Database(t)))
		must(t, conn, "CREATE SCHEMA tenure", "CREATE TABLE tenure.lease (tenant text)")
		if _, err := Migrate(ctx, conn, MigrateOptions{}); !errors.Is(err, ErrForeignSchema) {
			t.Errorf("migrate: %v", err)
		}
		if err := Down(ctx, conn); !errors.Is(err, ErrForeignSchema) {
			t.Errorf("down: %v", err)
		}
		if n := value[int](t, conn, `SELECT count(*) FROM pg_class WHERE relnamespace = 'tenure'::regnamespace`); n != 1 {
			t.Errorf("%d tables in the schema of somebody else, want his 1", n)
		}
	})
	t.Run("empty schema of the owner", func(t *testing.T) {
		conn := connect(t, s.URL(s.Database(t)))
		mustMigrate(t, conn, MigrateOptions{}) // for the roles
		must(t, conn, "DROP SCHEMA tenure CASCADE", "CREATE SCHEMA tenure AUTHORIZATION tenure_owner")
		if m := mustMigrate(t, conn, MigrateOptions{}); m.From != 0 {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("encoding", func(t *testing.T) {
		admin := connect(t, s.URL("postgres"))
		must(t, admin, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP DATABASE latin WITH (FORCE)") })
		conn := connect(t, s.URL("latin"))
		if _, err := Migrate(ctx, conn, MigrateOptions{}); state(err) != "0A000" || !strings.Contains(err.Error(), "UTF8") || !strings.Contains(err.Error(), "LATIN1") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		conn := connect(t, with(t, s.URL(s.Database(t)), "default_transaction_read_only", "on"))
		if _, err := Migrate(ctx, conn, MigrateOptions{}); state(err) != "25006" || !strings.Contains(err.Error(), "read-only; Nothing was changed. Connect to the primary") &&
			!strings.Contains(err.Error(), "Connect to the primary") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("standby", func(t *testing.T) {
		primary := testdb.Start(t, testdb.Options{})
		standby := primary.Standby(t, testdb.Options{})
		conn := connect(t, standby.URL("postgres"))
		if _, err := Migrate(ctx, conn, MigrateOptions{}); state(err) != "25006" || !strings.Contains(err.Error(), "standby") {
			t.Errorf("got %v", err)
		}
	})
}

// TestScriptLeavesTheCallersSettings: inside a project's own migration, what comes after the script runs as before it.
func TestScriptLeavesTheCallersSettings(t *testing.T) {
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	const settings = `SELECT concat_ws('|', current_user, current_setting('role'), current_setting('search_path'), current_setting('lock_timeout'), current_setting('synchronous_commit'))`
	must(t, conn, "BEGIN", "SET LOCAL search_path = public", "SET LOCAL synchronous_commit = off", "SET LOCAL lock_timeout = '7s'")
	before := value[string](t, conn, settings)
	must(t, conn, Script())
	if after := value[string](t, conn, settings); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
	must(t, conn, "CREATE TABLE mine (x int)", "ROLLBACK")
	if n := value[int](t, conn, schemas); n != 0 {
		t.Error("a rollback around the script left the schema")
	}
}

// TestMigrationIsInterrupted: a crash in the middle leaves nothing, a lost answer to COMMIT leaves the whole version, and the next migration
// finds either.
func TestMigrationIsInterrupted(t *testing.T) {
	s := testdb.Start(t, testdb.Options{})
	database := s.Database(t)
	conn := connect(t, s.URL(database))
	must(t, conn, "BEGIN", Script())
	s.Crash(t)
	s.Restart(t)
	conn = connect(t, s.URL(database))
	if n := value[int](t, conn, schemas); n != 0 {
		t.Fatal("half a migration is there")
	}
	p := testdb.StartProxy(t, s.Addr())
	p.AfterNext([]byte("commit\x00"), func() {}) // the statement, and no word of another
	if _, err := Migrate(t.Context(), connect(t, p.URL(s, database)), MigrateOptions{}); err == nil || !strings.Contains(err.Error(), "run it again to see") {
		t.Errorf("the answer to COMMIT was lost: %v", err)
	}
	if m := mustMigrate(t, conn, MigrateOptions{}); m.From != 1 || m.To != SchemaVersion || m.Authority.IsZero() { // the first version's answer was lost
		t.Errorf("after it: %+v", m)
	}
}
