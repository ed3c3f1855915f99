package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// onPostgres are the options of a drill on a database of the test's own.
func onPostgres(t *testing.T, scenario, twin string, rounds int) Options {
	t.Helper()
	server := testdb.Shared(t)
	url := server.URL(server.Template(t, migrateURL))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Scenario: scenario, URL: url, Store: "postgres", Rounds: rounds, Self: []string{self, partWord, twin}}
}

// migrateURL installs the schema.
func migrateURL(url string) (err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	return err
}

// nothingLeft looks for what a drill left in the database.
func nothingLeft(o Options) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, o.URL)
	if err != nil {
		return err
	}
	var schemas, marks int
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenure_drill_%'), (SELECT count(*) FROM tenure.mark)`).Scan(&schemas, &marks)
	if err = errors.Join(err, conn.Close(ctx)); err == nil && schemas+marks > 0 {
		err = fmt.Errorf("left: %d schemas and %d marks", schemas, marks)
	}
	return err
}

// TestEveryDrillOnPostgres plays each drill with strict checks, with the high-water mark, and without.
func TestEveryDrillOnPostgres(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, sc := range Scenarios() {
		if sc.whole != nil {
			continue
		}
		for _, how := range []string{"strict", "high-water", "unfenced"} {
			if how == "high-water" && sc.Name == "story" {
				continue
			}
			o := onPostgres(t, sc.Name, "sound", 2)
			o.Unfenced, o.HighWater = how == "unfenced", how == "high-water"
			cases = append(cases, func(*testing.T) error {
				if err := errors.Join(sound(o), nothingLeft(o)); err != nil {
					return fmt.Errorf("%s: %w", how, err)
				}
				return nil
			})
		}
	}
	together(t, cases)
}

// TestBrokenTwinsOnPostgres: what is broken is noticed there too.
func TestBrokenTwinsOnPostgres(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, c := range []struct {
		scenario, twin string
		highWater      bool
		shows          func(r Report) bool
	}{
		{"pause", "blind", false, func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }},
		{"pause", "blind", true, func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }},
		{"pause", "apart", false, func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }},
		{"pause", "silent", true, func(r Report) bool { return len(r.InvalidRounds) == 2 }},
		{"pause", "leaky", false, says("nobody was told of", "and it is in the log")},
		{"story", "blind", false, func(r Report) bool { return r.AcceptedStale == 6 && failedLines(r) == 6 }},
		{"missing-release", "early", false, says("still held it")},
		{"delayed-release", "release-by-name", false, says("the rightful write")},
		{"kill", "lagging", false, func(r Report) bool { return r.Handover != nil && r.Handover.Within == 0 }},
	} {
		o := onPostgres(t, c.scenario, c.twin, 2)
		o.HighWater = c.highWater
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			switch {
			case err != nil:
				return fmt.Errorf("%s with %s: %w", c.scenario, c.twin, err)
			case r.OK || !c.shows(r):
				return fmt.Errorf("%s with %s is ok, or not for another reason: %+v", c.scenario, c.twin, r)
			}
			return nothingLeft(o)
		})
	}
	together(t, cases)
}

// TestThroughTheAPIOnPostgres: the client refuses to send under the lease's context; under another the resource refuses.
func TestThroughTheAPIOnPostgres(t *testing.T) {
	t.Parallel()
	o := onPostgres(t, "pause", "sound", 2)
	o.ThroughAPI = true
	r, err := Run(t.Context(), o)
	if err != nil || !r.OK || r.LateWritesSent != 2 || r.RefusedBeforeSending != 2 || r.RefusedStale != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDrillsShareADatabase plays with a role that may do no more than it must, beside what earlier drills left when they were killed.
func TestDrillsShareADatabase(t *testing.T) {
	t.Parallel()
	o := onPostgres(t, "duplicate-release", "sound", 2)
	o.HighWater = true
	admin, err := pgx.Connect(t.Context(), o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	old, recent := newRun(time.Now().Add(-25*time.Hour)), newRun(time.Now().Add(-time.Hour))
	database := admin.Config().Database
	role := database + "_app"
	for _, text := range []string{`CREATE ROLE ` + role + ` LOGIN IN ROLE tenure_user`, `GRANT CREATE ON DATABASE ` + database + ` TO ` + role,
		`CREATE SCHEMA tenure_drill_` + old + ` AUTHORIZATION ` + role, `CREATE TABLE tenure_drill_` + old + `.value (x int)`,
		`CREATE SCHEMA tenure_drill_` + recent + ` AUTHORIZATION ` + role, `CREATE SCHEMA tenure_drill_of_somebody`} {
		if _, err := admin.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
	o.URL = testdb.Shared(t).URLAs(role, database)
	if r, err := Run(t.Context(), o); err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	var left []string
	var marks int
	err = admin.QueryRow(t.Context(), `SELECT array_agg(nspname::text ORDER BY nspname) FROM pg_namespace WHERE nspname LIKE 'tenure_drill_%'`).Scan(&left)
	err = errors.Join(err, admin.QueryRow(t.Context(), `SELECT count(*) FROM tenure.mark`).Scan(&marks))
	if err != nil || !slices.Equal(left, []string{"tenure_drill_" + recent, "tenure_drill_of_somebody"}) || marks != 2 {
		t.Errorf("left: %q, %d marks (a role that may not delete them leaves 2), %v", left, marks, err)
	}
}

// TestWithoutASchema: a database that Tenure's schema is missing in is refused before anything is made in it.
func TestWithoutASchema(t *testing.T) {
	t.Parallel()
	o := onPostgres(t, "pause", "sound", 1)
	server := testdb.Shared(t)
	o.URL = server.URL(server.Database(t))
	if _, err := Run(t.Context(), o); !errors.Is(err, postgres.ErrNoSchema) {
		t.Errorf("got %v", err)
	}
	o.URL = "postgres://app:secret@127.0.0.1:port/x"
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOption) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// TestDrillThroughPgBouncer: in transaction mode, with fewer connections to the server than the drill has to the pooler.
func TestDrillThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pause", "pause-in-transaction", "expired-hold", "late-ack"} {
		o := onPostgres(t, name, "sound", 2)
		direct, err := pgx.ParseConfig(o.URL)
		if err != nil {
			t.Fatal(err)
		}
		bouncer := testdb.StartBouncer(t, testdb.Shared(t), testdb.BouncerOptions{PoolSize: 20})
		o.URL = bouncer.URL(direct.Database) + "&default_query_exec_mode=cache_describe"
		if r, err := Run(t.Context(), o); err != nil || !r.OK {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
