//go:build unix

package sql_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// TestProtectSession plays protect.sql in three terminals, and holds the page to what comes out.
func TestProtectSession(t *testing.T) {
	t.Parallel()
	server, name := testdb.Shared(t), database(t)
	psql := program(t, []string{"psql"}, "--version")
	terminals := map[string]*terminal{"O": openTerminal(t, psql, server.URLAs("deployer", name))}
	for _, worker := range []string{"A", "B"} {
		terminals[worker] = openTerminal(t, psql, server.URLAs("worker", name))
	}
	hold(t, "protect", "\n"+playAll(t, "protect.sql", terminals, []string{
		"none was presented in this transaction\n", "\nTN013\n", "UPDATE 1\na=> COMMIT;", "a row of lease \"stock/chair\"", "in this transaction; token 1 holds it\n",
		"superseded, newer token 2\n", "\nTN010\n", "refused token 1 of lease \"stock/lamp\": superseded; token 2 holds it\n", "trigger tenure_guard_update is disabled",
		// Of three refused sales of a lamp and one of a chair none has happened; two lamps were sold, and a chair while the trigger was off.
		"item    | chair\non_hand | 2\n-[ RECORD 2 ]\nitem    | lamp\non_hand | 5\n```",
	}))
}

// TestReplicatedChangesPass: as the page says, what a subscription applies passes a protected table, also with p_always, which stops other sessions that replicate.
func TestReplicatedChangesPass(t *testing.T) {
	t.Parallel()
	server := testdb.Start(t, testdb.Options{Settings: map[string]string{"wal_level": "logical", "max_wal_senders": "4"}})
	publisher, subscriber := server.Database(t), server.Database(t)
	from, to := connectTo(t, server.URL(publisher)), connectTo(t, server.URL(subscriber))
	if _, err := postgres.Migrate(t.Context(), to, postgres.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	do := func(conn *pgx.Conn, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	const table = `CREATE TABLE stock (item text PRIMARY KEY, on_hand int NOT NULL)`
	do(from, table, `CREATE PUBLICATION shop FOR TABLE stock`, `SELECT pg_create_logical_replication_slot('shop', 'pgoutput')`)
	do(to, table, `SELECT tenure.protect('stock', $$'stock/' || item$$, p_always => true)`,
		fmt.Sprintf(`CREATE SUBSCRIPTION shop CONNECTION '%s' PUBLICATION shop WITH (create_slot = false, copy_data = false)`, server.URL(publisher)))
	do(from, `INSERT INTO stock VALUES ('lamp', 7)`)
	do(to, `DO $$ BEGIN
			FOR i IN 1..600 LOOP
				IF EXISTS (SELECT FROM stock WHERE item = 'lamp') THEN RETURN; END IF;
				PERFORM pg_sleep(0.05);
			END LOOP;
			RAISE 'the row did not come';
		END $$`,
		`SET session_replication_role = replica`)
	var refused *pgconn.PgError
	if _, err := to.Exec(t.Context(), `UPDATE stock SET on_hand = 0`); !errors.As(err, &refused) || refused.Code != "TN013" {
		t.Errorf("a session that replicates: %v, want TN013", err)
	}
	do(to, `DROP SUBSCRIPTION shop`)
}
