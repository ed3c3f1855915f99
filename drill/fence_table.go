package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
)

// tableSite is a kind of store beside which a table can refuse writes that come without a claim.
type tableSite interface {
	// protect has the run's values refuse each write without a claim to the round's name; unprotect takes that away.
	protect(ctx context.Context, r *resource) error
	unprotect(ctx context.Context, r *resource) error
	// present presents a claim to the transaction, done is what it ends with.
	present(ctx context.Context, tx *sql.Tx, claim fence.Claim) error
	done(ctx context.Context, tx *sql.Tx) error
	// refused is the refusal of a protected table as a [*fence.RefusedError], and any other error as it is.
	refused(err error) error
	// stranger writes as code does that has never heard of leases: by the driver alone. role is whom it writes as, or empty. It returns what the
	// table said if that refused.
	stranger(ctx context.Context, r *resource, role string, f form, w writing) (refusal string, err error)
}

// rows are the values of a run in a table that can be protected.
type rows struct {
	site    tableSite
	table   string // short name of what is written to
	value   string // the table that is read as the values, where it has not the usual name
	arrange string // statements that make them of the run's tables
}

// usingRows has the resource write to the rows of its kind of store by plain statements.
func (r *resource) usingRows(at place) error {
	switch s := at.site().(type) {
	case postgresSite:
		// A newer version of a value is how COPY, which can replace no row, does damage: whoever reads takes the latest.
		r.rows = &rows{site: s, table: "item", arrange: `ALTER TABLE [value] RENAME TO item;
			ALTER TABLE [item] DROP CONSTRAINT value_pkey, ADD COLUMN version int NOT NULL DEFAULT 1, ADD PRIMARY KEY (round, version);
			CREATE VIEW [value] AS SELECT DISTINCT ON (round) round, content FROM [item] ORDER BY round, version DESC;`}
	case sqliteSite:
		// No table whose name begins with tenure_ can be protected: those are Tenure's own.
		r.rows = &rows{site: s, table: "value", value: protectedPrefix + r.run + "_value", arrange: `ALTER TABLE {schema}_value RENAME TO [value]`}
	default:
		return fmt.Errorf("%w: tables of %T cannot be protected", ErrProcess, s)
	}
	return nil
}

// arrangeRows makes the rows of the run's tables, once these are there.
func (r *resource) arrangeRows(ctx context.Context, at place) error {
	if err := r.usingRows(at); err != nil {
		return err
	}
	return r.exec(ctx, r.rows.arrange)
}

// rowName is the expression that gives the name of a row's lease.
func (r *resource) rowName() string { return "'" + namesOf(r.run) + "' || round" }

// put changes the value by statements without any condition, as code does that trusts its lock, or knows of none.
func (d *rows) put(ctx context.Context, r *resource, tx execer, round int, content string) error {
	result, err := tx.ExecContext(ctx, r.sql(`UPDATE [`+d.table+`] SET content = ?2 WHERE round = ?1`), round, content)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, r.sql(`INSERT INTO [`+d.table+`] (round, content) VALUES (?1, ?2)`), round, content)
	return err
}

// writeRow presents the claim by allow, which may be nil, writes, and records the answer. An error means that it is not known to be either.
func (r *resource) writeRow(ctx context.Context, w writing, allow check) (model.Answer, error) {
	err := r.inTx(ctx, func(tx *sql.Tx) error {
		if allow != nil {
			if err := allow(ctx, tx, w.claim); err != nil {
				return err
			}
		}
		if err := r.apply(ctx, tx, w); err != nil {
			return err
		}
		return r.rows.site.done(ctx, tx)
	})
	return r.answered(ctx, w, r.rows.site.refused(err))
}

// protectRows arranges the run's values in rows and, unless the drill is to show the damage, protects them.
func protectRows(ctx context.Context, c *conductor) error {
	if err := c.res.arrangeRows(ctx, c.o.place()); err != nil {
		return err
	}
	site := c.res.rows.site
	if c.o.Unfenced {
		return nil
	}
	c.disarm = append(c.disarm, func(ctx context.Context) error { return site.unprotect(ctx, c.res) })
	return site.protect(ctx, c.res)
}

// protectRowsForRole does the same, and makes a role beside the tables' owner.
func protectRowsForRole(ctx context.Context, c *conductor) error {
	if err := protectRows(ctx, c); err != nil {
		return err
	}
	site, ok := c.site.(postgresSite)
	if !ok {
		return fmt.Errorf("%w: %T has no roles", ErrProcess, c.site)
	}
	if err := site.createRole(ctx, c.res, c.began); err != nil {
		return err
	}
	c.disarm = append(c.disarm, func(ctx context.Context) error { return site.dropRole(ctx, c.res) })
	return nil
}

// longAgo reports whether what a run's id begins with says that it began so long ago that a later drill removes what it left.
func longAgo(began string, now time.Time) bool {
	seconds, err := strconv.ParseUint(began, 16, 32)
	return err == nil && now.Sub(time.Unix(int64(seconds), 0)) > leftAfter
}

// tableVariant is one way in which a write reaches a protected table.
type tableVariant struct {
	Variant
	arm    func(ctx context.Context, c *conductor) error
	play   func(ctx context.Context, r *round) error
	demand model.Demand
	ttl    time.Duration
}

// scenario is the variant as a drill of its own.
func (v tableVariant) scenario(of Scenario) Scenario {
	return Scenario{Name: of.Name + " " + v.Name, ttl: v.ttl, margin: v.ttl / 5, atOnce: 2, demand: v.demand,
		guarded: guardPresent, unguarded: guardNone, arm: v.arm, play: v.play}
}

// fenceTable plays the variants of a late holder, fenceTableForeign those of code that has never heard of leases.
func fenceTable(ctx context.Context, o Options, sc Scenario) (Report, error) {
	return playTables(ctx, o, sc, holderVariants(o))
}

func fenceTableForeign(ctx context.Context, o Options, sc Scenario) (Report, error) {
	return playTables(ctx, o, sc, foreignVariants(o))
}

// playTables plays the variants at the same time, each in a run of its own. One that cannot be played here is omitted by its name, and the drill is
// not ok: it has not shown what it promised.
func playTables(ctx context.Context, o Options, sc Scenario, variants []tableVariant) (Report, error) {
	reports, failures := make([]Report, len(variants)), make([]error, len(variants))
	var all sync.WaitGroup
	for i, v := range variants {
		all.Go(func() {
			reports[i], failures[i] = conduct(ctx, o, v.scenario(sc))
		})
	}
	all.Wait()
	r := Report{OK: true, InvalidRounds: []int{}}
	for i, v := range variants {
		rounds := o.Rounds
		if errors.Is(failures[i], errNoRole) {
			v.Omitted, rounds = errNoRole.Error(), 0
			reports[i] = Report{Problems: []string{"omitted: " + v.Omitted}}
			failures[i] = nil
		}
		r.add(v.Variant, reports[i], rounds)
	}
	return r, errors.Join(failures...)
}

// holderTTL is of a holder that is stopped, foreignTTL of those whom a stranger's writes fall between: nobody waits for their end.
const (
	holderTTL  = 2 * time.Second
	foreignTTL = 5 * time.Second
)

func holderVariants(o Options) []tableVariant {
	variant := func(name, shows, told string, f form) tableVariant {
		return tableVariant{Variant: Variant{Name: name, Since: sinceEnd, Shows: shows}, arm: protectRows, play: playTable(f),
			demand: model.Demand{Late: 1, Told: told}, ttl: holderTTL}
	}
	if o.Unfenced {
		return []tableVariant{variant("unprotected", "a plain write to the same table without protection: accepted", "", formPlain)}
	}
	all := []tableVariant{
		variant("presents", "the former holder presents its claim, and that is refused", fence.Superseded.String(), formPresents),
		variant("presents-nothing", "it writes without presenting anything, and the table refuses", fence.NotPresented.String(), formPlain)}
	if o.URL != "" {
		all = append(all, variant("forges", "it sets by hand what presenting would set, and the table refuses", fence.Superseded.String(), formForged))
	}
	return all
}

// playTable is pause with a write of that form.
func playTable(f form) func(ctx context.Context, r *round) error {
	return func(ctx context.Context, r *round) error {
		a, err := r.holder(ctx, owner("a"), 0)
		if err != nil {
			return err
		}
		b, err := r.open(ctx, "B", owner("b"))
		if err != nil {
			return err
		}
		answer, err := r.stopped(ctx, a, command{Element: "a-late", Form: f})
		if err != nil {
			return err
		}
		if err := r.succeed(ctx, b, "b-1"); err != nil {
			return err
		}
		return errors.Join(r.continued(ctx, a, answer), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
	}
}

func foreignVariants(o Options) []tableVariant {
	variant := func(name, shows, told string, role bool, forms ...form) tableVariant {
		v := tableVariant{Variant: Variant{Name: name, Shows: shows}, arm: protectRows, play: playForeign(role, forms...),
			demand: model.Demand{Late: len(forms)}, ttl: foreignTTL}
		if role {
			v.arm = protectRowsForRole
		}
		if !o.Unfenced {
			v.demand.Told = told
		}
		return v
	}
	if o.URL == "" {
		return []tableVariant{variant("another-program", "a program that opens the file writes: UPDATE, ON CONFLICT, REPLACE, DELETE", sqliteRefusal, false,
			formUpdate, formUpsert, formReplace, formDelete)}
	}
	forms := []form{formUpdate, formUpsert, formCopy, formDelete}
	return []tableVariant{
		variant("as-owner", "the table's owner writes: UPDATE, ON CONFLICT, COPY, DELETE", rowRefused, false, forms...),
		variant("as-another-role", "another role, which was granted the table, writes the same", rowRefused, true, forms...)}
}

// playForeign has a process F, which knows nothing of leases, read what A wrote, and write when B holds. B then goes on working.
func playForeign(asRole bool, forms ...form) func(ctx context.Context, r *round) error {
	return func(ctx context.Context, r *round) error {
		a, err := r.holder(ctx, owner("a"), 0)
		if err != nil {
			return err
		}
		f, err := r.spawnGuarded("F", guardForeign)
		if err != nil {
			return err
		}
		b, err := r.open(ctx, "B", owner("b"))
		if err != nil {
			return err
		}
		if err := errors.Join(steps(ctx, f, command{Op: opRead}), leave(ctx, a), r.succeed(ctx, b, "b-1")); err != nil {
			return err
		}
		r.sent = true
		role := ""
		if asRole {
			role = r.c.res.role()
		}
		for _, way := range forms {
			if err := steps(ctx, f, command{Op: opForeign, Form: way, Element: "f-" + string(way), Role: role}); err != nil {
				return err
			}
		}
		return errors.Join(steps(ctx, b, command{Op: opRead}, command{Op: opWrite, Element: "b-2"}), leave(ctx, b))
	}
}
