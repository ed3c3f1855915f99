//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
)

const protectName = `'orders/' || order_id`

// protects runs protect through its modes on a store whose table orders is there.
func (w *world) protects(table string) {
	w.t.Helper()
	w.fails(exitUsage, "which table", "protect")
	w.fails(exitUsage, "--name is missing", "protect", table)
	w.fails(exitUsage, "exclude each other", "protect", table, "--name", "x", "--print", "--apply")
	w.fails(exitUsage, "takes no table", "protect", table, "--list")
	w.fails(exitUsage, "go with", "protect", table, "--remove", "--name", "x")
	for _, bad := range []string{`random()`, `'a'; DROP TABLE orders`, `absent`, `(SELECT 1)`} {
		w.fails(exitUsage, "invalid", "protect", table, "--name", bad, "--apply")
	}
	w.fails(exitUsage, "invalid", "protect", "nowhere", "--name", protectName)
	script := w.ok("protect", table, "--name", protectName)
	if !strings.Contains(script, "CREATE TRIGGER") || !strings.Contains(script, "COMMIT;\n") || strings.Contains(script, ";;") {
		w.t.Errorf("the script: %s", script)
	}
	if out := w.ok("protect", "--list"); !strings.Contains(out, "no table is protected") {
		w.t.Errorf("after it was printed: %s", out)
	}
	w.fails(exitFailed, "is not protected", "protect", table, "--remove")
	var applied struct{ Statements []string }
	if err := json.Unmarshal([]byte(w.ok("protect", table, "--name", protectName, "--apply", "--json")), &applied); err != nil || len(applied.Statements) == 0 {
		w.t.Errorf("applied: %+v, %v", applied, err)
	}
	var list protectedJSON
	if err := json.Unmarshal([]byte(w.ok("protect", "--list", "--json")), &list); err != nil || len(list.Tables) != 1 || len(list.Tables[0].Problems) > 0 || len(list.NotStopped) == 0 || list.Store == "" {
		w.t.Errorf("the list: %+v, %v", list, err)
	}
}

// TestProtectPostgres: print, apply, list and remove on PostgreSQL; what is switched off is told with exit 1.
func TestProtectPostgres(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	w, database := postgresWorld(t, s)
	runSQL(t, s.URL(database), `CREATE TABLE orders (order_id int PRIMARY KEY, state text)`)
	w.protects("orders")
	runSQL(t, s.URL(database), `ALTER TABLE orders DISABLE TRIGGER tenure_guard_update`)
	if got := w.do("protect", "--list"); got.code != exitFailed || !strings.Contains(got.stdout, "NOT IN FORCE: public.orders: trigger tenure_guard_update is disabled") {
		t.Errorf("exit %d: %s", got.code, got.stdout)
	}
	w.ok("protect", "orders", "--name", protectName, "--apply", "--always")
	if out := w.ok("protect", "--list"); !strings.Contains(out, "replica role yes") {
		t.Errorf("always: %s", out)
	}
	w.fails(exitFailed, "public.orders", "migrate", "--down", "--yes")
	w.ok("protect", "orders", "--remove")
	w.ok("migrate", "--down", "--yes")
}

// TestProtectFenceHalf: a database apart from the authority.
func TestProtectFenceHalf(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	database := s.Database(t)
	w := newWorld(t)
	w.onStore(withSecret(s.URL(database)))
	runSQL(t, s.URL(database), `CREATE TABLE orders (order_id int PRIMARY KEY, state text)`)
	for _, want := range []string{"installed", "up to date"} {
		if out := w.ok("migrate", "--fence-only"); !strings.Contains(out, "fence half, "+schemaText()+", "+want) {
			t.Errorf("migrate: %s", out)
		}
	}
	w.protects("orders")
	w.fails(exitFailed, "fence half", "migrate")
	w.fails(exitNoStore, "fence half", "lease", "ls")
	if out := w.ok("migrate", "--fence-only", "--print"); !strings.Contains(out, "tenure.mark") || strings.Contains(out, "CREATE TABLE tenure.lease") {
		t.Error("the script is not that of the half")
	}
}

// TestProtectSQLite: the same in a file.
func TestProtectSQLite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onStore("sqlite:" + filepath.Join(t.TempDir(), "app.db"))
	w.fails(exitNoStore, "", "protect", "--list")
	w.ok("migrate")
	sqliteExec(t, strings.TrimPrefix(w.store, "sqlite:"), `CREATE TABLE orders (order_id INTEGER PRIMARY KEY, state TEXT)`)
	w.protects("orders")
	w.fails(exitUsage, "--always", "protect", "orders", "--name", protectName, "--always")
	w.ok("protect", "orders", "--remove")
}

// sqliteExec runs a statement as another program does.
func sqliteExec(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
