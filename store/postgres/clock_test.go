package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// installManual is install with every reading of the clock in every function replaced by one that moves by hand. The rest of
// the functions' text is what is installed elsewhere.
func installManual(url string) error {
	if err := install(url); err != nil {
		return err
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `CREATE TABLE tenure.manual (now timestamptz NOT NULL); INSERT INTO tenure.manual VALUES ('2026-01-01');
		ALTER TABLE tenure.manual OWNER TO tenure_owner;
		CREATE FUNCTION tenure.manual_clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN (SELECT now FROM tenure.manual); END'`)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND prosrc LIKE '%clock_timestamp()%'`)
	if err != nil {
		return err
	}
	definitions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if _, err := conn.Exec(ctx, strings.NewReplacer("pg_catalog.clock_timestamp()", "tenure.manual_clock()", "clock_timestamp()", "tenure.manual_clock()").Replace(d)); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, `UPDATE tenure.authority SET origin = tenure.manual_clock()`)
	return err
}

// manualHarness meets expiries to the microsecond.
type manualHarness struct{ *harness }

func (h manualHarness) Tolerance() time.Duration { return 0 }

func (h manualHarness) Tick(d time.Duration) {
	if _, err := h.own.Exec(context.Background(), `UPDATE tenure.manual SET now = now + $1::interval`, d); err != nil {
		h.t.Error(err)
	}
}

// newManualHarness has a server of its own: its template differs.
func newManualHarness(t testing.TB, server *testdb.Server) manualHarness {
	t.Helper()
	h := &harness{t: t, server: server, database: server.Template(t, installManual)}
	h.start()
	t.Cleanup(h.stop)
	return manualHarness{h}
}

// TestEqualityConformance meets expiries exactly.
func TestEqualityConformance(t *testing.T) {
	server := testdb.Start(t, testdb.Options{})
	for _, c := range leasetest.EqualityCases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), newManualHarness(t, server)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
