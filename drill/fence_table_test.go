package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/testdb"
)

// unprotectingTwin takes the protection away, and writes late without presenting anything.
func unprotectingTwin(w *worker) {
	w.late = func(ctx context.Context, c command) (*model.Answer, error) {
		if err := w.res.rows.site.unprotect(ctx, w.res); err != nil {
			return nil, err
		}
		c.Form = formPlain
		return w.writeLate(ctx, c)
	}
}

// tableOptions are the options of a drill on each kind of store.
func tableOptions(t *testing.T, scenario, twin string, rounds int) []Options {
	t.Helper()
	return []Options{onPostgres(t, scenario, twin, rounds), options(t, scenario, twin, rounds)}
}

// noTraces looks for what a drill left: tables, roles, and what is known of protections.
func noTraces(o Options) error {
	if o.URL == "" {
		res, err := openResource(place{Path: o.Path}, "x")
		if err != nil {
			return err
		}
		var n int
		err = res.db.QueryRow(`SELECT (SELECT count(*) FROM tenure_protected) + (SELECT count(*) FROM sqlite_schema WHERE name GLOB '*drill*')`).Scan(&n)
		if n > 0 {
			err = errors.Join(err, fmt.Errorf("%d protections and tables left", n))
		}
		return errors.Join(err, res.close(), noTables(o.Path))
	}
	conn, err := pgx.Connect(context.Background(), o.URL)
	if err != nil {
		return err
	}
	// The roles of a server are everybody's: those of drills that are under way in other databases are not ours.
	var guards, triggers int
	err = conn.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'tenure_guard_%'), (SELECT count(*) FROM pg_event_trigger)`).Scan(&guards, &triggers)
	if guards+triggers > 0 {
		err = errors.Join(err, fmt.Errorf("left: %d guards, %d event triggers", guards, triggers))
	}
	return errors.Join(err, conn.Close(context.Background()), nothingLeft(o))
}

// TestFenceTable: damage without protection, none with, on both kinds of store, and nothing is left.
func TestFenceTable(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		for _, scenario := range []string{"fence-table", "fence-table-foreign"} {
			for _, o := range tableOptions(t, scenario, "sound", 2) {
				o.Unfenced = unfenced
				cases = append(cases, func(*testing.T) error { return soundTables(o) })
			}
		}
	}
	together(t, cases)
}

func soundTables(o Options) error {
	r, err := Run(context.Background(), o)
	if err != nil || !r.OK {
		return fmt.Errorf("%s, unfenced %v, on %s: %+v, %w", o.Scenario, o.Unfenced, o.Store, r, err)
	}
	names := map[string]int{"presents": 1, "presents-nothing": 1, "forges": 1}
	switch {
	case o.Scenario == "fence-table" && o.Unfenced:
		names = map[string]int{"unprotected": 1}
	case o.Scenario == "fence-table" && o.URL == "":
		delete(names, "forges")
	case o.Scenario == "fence-table-foreign" && o.URL == "":
		names = map[string]int{"another-program": 4}
	case o.Scenario == "fence-table-foreign":
		names = map[string]int{"as-owner": 4, "as-another-role": 4}
	}
	for _, v := range r.Variants {
		late := names[v.Name] * o.Rounds
		accepted, refused, told := 0, late, "presented"
		if o.Unfenced {
			accepted, refused, told = late, 0, ""
		}
		if v.Name == "presents" || v.Name == "forges" {
			told = "superseded"
		}
		if late == 0 || !v.OK || v.Late != late || v.AcceptedStale != accepted || v.RefusedStale != refused || (v.LostUpdates > 0) != o.Unfenced || !strings.Contains(v.Told, told) {
			return fmt.Errorf("%s, unfenced %v, on %s: %+v", o.Scenario, o.Unfenced, o.Store, v)
		}
		delete(names, v.Name)
	}
	if len(names) > 0 {
		return fmt.Errorf("%s, unfenced %v, on %s: not played: %v", o.Scenario, o.Unfenced, o.Store, names)
	}
	return noTraces(o)
}

// TestFenceTableUnprotected: a protection that is taken away behind the drill's back is found out; so is a late write that is not sent.
func TestFenceTableUnprotected(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for twin, shows := range map[string]func(Report) bool{
		"unprotecting": func(r Report) bool { return r.AcceptedStale == r.LateWritesSent && r.LostUpdates > 0 },
		"silent":       func(r Report) bool { return r.LateWritesSent == 0 && len(r.InvalidRounds) > 0 },
		"blind":        says("the rightful write"),
	} {
		for _, o := range tableOptions(t, "fence-table", twin, 1) {
			cases = append(cases, func(*testing.T) error {
				r, err := Run(context.Background(), o)
				if err != nil || r.OK || !shows(r) {
					return fmt.Errorf("%s on %s: %+v, %w", twin, o.Store, r, err)
				}
				return noTraces(o)
			})
		}
	}
	together(t, cases)
}

// armedTwin plays one variant of a drill after something was done to its protected table.
func armedTwin(o Options, variant string, spoil string) (Report, error) {
	sc, _ := find(o.Scenario)
	variants := holderVariants(o)
	if sc.Name == "fence-table-foreign" {
		variants = foreignVariants(o)
	}
	v := variants[slices.IndexFunc(variants, func(v tableVariant) bool { return v.Name == variant })]
	arm := v.arm
	v.arm = func(ctx context.Context, c *conductor) error {
		if err := arm(ctx, c); err != nil {
			return err
		}
		return c.res.exec(ctx, spoil)
	}
	return conduct(context.Background(), o, v.scenario(sc))
}

// TestTriggersThatAreOff: each trigger that is missing or switched off lets its statements through, for the owner and for another role.
func TestTriggersThatAreOff(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, variant := range []string{"as-owner", "as-another-role"} {
		for _, c := range []struct {
			spoil    string
			accepted []string
		}{
			{`ALTER TABLE [item] DISABLE TRIGGER USER`, []string{"f-update", "f-upsert", "f-copy", "f-delete"}},
			{`ALTER TABLE [item] DISABLE TRIGGER tenure_guard_insert`, []string{"f-copy"}},
			{`DROP TRIGGER tenure_guard_update ON [item]`, []string{"f-update", "f-upsert"}},
			{`ALTER TABLE [item] ENABLE REPLICA TRIGGER tenure_guard_delete`, []string{"f-delete"}},
		} {
			o := onPostgres(t, "fence-table-foreign", "sound", 1)
			cases = append(cases, func(*testing.T) error {
				r, err := armedTwin(o, variant, c.spoil)
				if err != nil || r.OK || r.AcceptedStale != len(c.accepted) || r.LateWritesSent != 4 {
					return fmt.Errorf("%s, %s: %+v, %w", variant, c.spoil, r, err)
				}
				return noTraces(o)
			})
		}
	}
	o := options(t, "fence-table-foreign", "sound", 1)
	cases = append(cases, func(*testing.T) error {
		r, err := armedTwin(o, "another-program", `DROP TABLE [value]; CREATE TABLE [value] (round INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT`)
		if err != nil || r.OK || r.AcceptedStale != 4 || r.LostUpdates == 0 {
			return fmt.Errorf("a table that was made anew: %+v, %w", r, err)
		}
		return noTraces(o)
	})
	together(t, cases)
}

// weaken changes the schema of Tenure.
func weaken(o Options, text string) error {
	conn, err := pgx.Connect(context.Background(), o.URL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), text)
	return errors.Join(err, conn.Close(context.Background()))
}

// TestGuardsThatTrust: a guard that believes what is set is found out by the claim that is forged, and one that lets the owner pass by the owner's writes.
func TestGuardsThatTrust(t *testing.T) {
	t.Parallel()
	guard := func(passes string) string {
		return `CREATE OR REPLACE FUNCTION tenure.guard(p_table oid, p_names text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
			BEGIN
				IF NOT ` + passes + ` THEN
					PERFORM tenure.guard_all(p_table, p_names, nullif(current_setting('tenure.presented', true), '')::jsonb);
				END IF;
			END $$`
	}
	believes, owns := guard(`coalesce(current_setting('tenure.presented', true), '') <> ''`), guard(`current_setting('role') = 'none'`)
	var cases []func(t *testing.T) error
	for _, c := range []struct {
		scenario, variant, guard string
		ok                       bool
	}{
		{"fence-table", "forges", believes, false}, {"fence-table", "presents", believes, true}, {"fence-table", "presents-nothing", believes, true},
		{"fence-table-foreign", "as-owner", owns, false}, {"fence-table-foreign", "as-another-role", owns, true},
	} {
		o := onPostgres(t, c.scenario, "sound", 1)
		cases = append(cases, func(*testing.T) error {
			if err := weaken(o, c.guard); err != nil {
				return err
			}
			r, err := armedTwin(o, c.variant, `SELECT 1`)
			if err != nil || r.OK != c.ok || (r.AcceptedStale > 0) == c.ok {
				return fmt.Errorf("%s %s: %+v, %w", c.scenario, c.variant, r, err)
			}
			return nil
		})
	}
	together(t, cases)
}

// TestWithoutARole: a role that may not create others plays what it can; the rest is omitted by its name, and the drill is not ok.
func TestWithoutARole(t *testing.T) {
	t.Parallel()
	o := onPostgres(t, "fence-table-foreign", "sound", 1)
	admin, err := pgx.Connect(t.Context(), o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	database := admin.Config().Database
	role := database + "_app"
	for _, text := range []string{`CREATE ROLE ` + role + ` LOGIN IN ROLE tenure_user`, `GRANT CREATE ON DATABASE ` + database + ` TO ` + role} {
		if _, err := admin.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
	all := o.URL
	o.URL = testdb.Shared(t).URLAs(role, database)
	r, err := Run(t.Context(), o)
	if err != nil || r.OK || len(r.Variants) != 2 || !r.Variants[0].OK || r.Variants[0].Late != 4 || r.Variants[1].OK || r.Variants[1].Omitted == "" || !says("as-another-role: omitted")(r) {
		t.Errorf("%+v, %v", r, err)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "OMITTED, NOT ok: the drill's role may not create roles") {
		t.Errorf("%v:\n%s", err, &table)
	}
	// With CREATEROLE alone, which is no superuser, all of it is played.
	if _, err := admin.Exec(t.Context(), `ALTER ROLE `+role+` CREATEROLE`); err != nil {
		t.Fatal(err)
	}
	if r, err := Run(t.Context(), o); err != nil || !r.OK || r.LateWritesSent != 8 {
		t.Errorf("with CREATEROLE: %+v, %v", r, err)
	}
	o.URL = all
	if err := noTraces(o); err != nil {
		t.Error(err)
	}
}

// TestTracesOfADrillThatWasKilled: roles, and protections of tables in a file, are removed by a later drill, once they are old.
func TestTracesOfADrillThatWasKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	now := time.Now()
	o := onPostgres(t, "fence-table-foreign", "sound", 1)
	admin, err := pgx.Connect(ctx, o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	old, young := tablePrefix+newRun(now.Add(-25*time.Hour)), tablePrefix+newRun(now.Add(-time.Hour))
	for _, text := range []string{`CREATE ROLE ` + old, `CREATE SCHEMA ` + old, `CREATE TABLE ` + old + `.item (x int)`, `GRANT USAGE ON SCHEMA ` + old + ` TO ` + old,
		`GRANT INSERT ON ` + old + `.item TO ` + old, `CREATE ROLE ` + young, `CREATE ROLE ` + old + `_app`} {
		if _, err := admin.Exec(ctx, text); err != nil {
			t.Fatal(text, err)
		}
	}
	r, err := Run(ctx, o)
	var left []string
	err = errors.Join(err, admin.QueryRow(ctx, `SELECT array_agg(rolname::text ORDER BY rolname) FROM pg_roles WHERE rolname = ANY ($1)`, []string{old, young, old + "_app"}).Scan(&left))
	if err != nil || !r.OK || !slices.Equal(left, []string{old + "_app", young}) {
		t.Errorf("left: %q, %v; %+v", left, err, r)
	}
	for _, text := range []string{`DROP ROLE ` + young, `DROP ROLE ` + old + `_app`} {
		if _, err := admin.Exec(ctx, text); err != nil {
			t.Error(err)
		}
	}

	file := options(t, "fence-table-foreign", "sound", 1)
	if r, err := Run(ctx, file); err != nil || !r.OK { // makes the file
		t.Fatalf("%+v, %v", r, err)
	}
	res, err := openResource(file.place(), newRun(now.Add(-25*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.close() }()
	if err := errors.Join(res.create(ctx), res.arrangeRows(ctx, file.place())); err != nil {
		t.Fatal(err)
	}
	if err := res.rows.site.protect(ctx, res); err != nil {
		t.Fatal(err)
	}
	r, err = Run(ctx, file)
	if err = errors.Join(err, noTraces(file)); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFenceTableThroughPgBouncer: in transaction mode, where neither a role nor what was presented may outlive a transaction.
func TestFenceTableThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fence-table", "fence-table-foreign"} {
		o := onPostgres(t, name, "sound", 1)
		direct, err := pgx.ParseConfig(o.URL)
		if err != nil {
			t.Fatal(err)
		}
		bouncer := testdb.StartBouncer(t, testdb.Shared(t), testdb.BouncerOptions{PoolSize: 20})
		through := o
		through.URL = bouncer.URL(direct.Database) + "&default_query_exec_mode=cache_describe"
		if r, err := Run(t.Context(), through); err != nil || !r.OK {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if err := noTraces(o); err != nil {
			t.Error(err)
		}
	}
}

// TestFenceTableLeavesNothing: neither after its end nor when it is interrupted, the role included.
func TestFenceTableLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		o := onPostgres(t, "fence-table-foreign", "sound", 1)
		sc, _ := find(o.Scenario)
		v := foreignVariants(o)[1]
		ctx, cancel := context.WithCancel(t.Context())
		arm, role := v.arm, ""
		v.arm = func(ctx context.Context, c *conductor) error {
			err := arm(ctx, c)
			role = c.res.role()
			if interrupted {
				cancel()
			}
			return err
		}
		r, err := conduct(ctx, o, v.scenario(sc))
		cancel()
		if err != nil || r.OK == interrupted {
			t.Errorf("interrupted %v: %+v, %v", interrupted, r, err)
		}
		conn, err := pgx.Connect(t.Context(), o.URL)
		if err != nil {
			t.Fatal(err)
		}
		var left bool
		err = conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)`, role).Scan(&left)
		if err = errors.Join(err, conn.Close(t.Context()), noTraces(o)); err != nil || left || role == "" {
			t.Errorf("interrupted %v: role %q left: %v, %v", interrupted, role, left, err)
		}
	}
}
