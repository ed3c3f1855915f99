//go:build unix

package sql_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// limit bounds each program that a test runs.
const limit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// install fills a database as docs/sql.md says: roles of people and programs, the schema, the tables of the examples.
func install(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE ROLE worker LOGIN; CREATE ROLE watch LOGIN; CREATE ROLE deployer LOGIN"); err != nil {
		return err
	}
	if _, err := postgres.Migrate(ctx, conn, postgres.MigrateOptions{Grant: []string{"worker", "deployer"}}); err != nil {
		return err
	}
	setup, err := os.ReadFile("setup.sql")
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "GRANT tenure_operator TO watch; GRANT CREATE ON SCHEMA public TO deployer; SET ROLE deployer;\n"+string(setup))
	return err
}

// database is a fresh one with the schema.
func database(t *testing.T) string {
	t.Helper()
	return testdb.Shared(t).Template(t, install)
}

// connect gives a connection to the database of a test: as a role, or as the superuser for "".
func connect(t *testing.T, role, database string) *pgx.Conn {
	t.Helper()
	url := testdb.Shared(t).URL(database)
	if role != "" {
		url = testdb.Shared(t).URLAs(role, database)
	}
	return connectTo(t, url)
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// program finds the first of several commands that run: with those arguments, and successfully.
func program(t *testing.T, candidates []string, args ...string) string {
	t.Helper()
	var failed error
	for _, name := range candidates {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err == nil {
			return name
		}
		failed = errors.Join(failed, err, errors.New(string(out)))
	}
	t.Fatalf("%v does not work here: %v\nrun: sudo make services", candidates, failed)
	return ""
}
