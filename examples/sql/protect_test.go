//go:build unix

package sql_test

import (
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
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
