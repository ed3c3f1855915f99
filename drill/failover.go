package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// Numbers of the drill failover.
const (
	// bulk is how many tokens a branch grants for one name: more than the 32 that PostgreSQL logs ahead of a sequence, so that
	// branches that did not jump would meet.
	bulk = 70
	// age is how old the authority is made to be, and behind how far the clock of the last branch is set back.
	age    = "1 day"
	behind = "1 hour"

	orderTTL = 30 * time.Second // of the holder whose grant is lost
	stockTTL = 4 * time.Second  // of the holder whose renewals are lost
	database = "postgres"
	counter  = "tenure-drill/counter"
	standbys = 3
)

// failover builds servers of its own, loses commits with a primary, and has every branch of its history grant. The resource and its
// marks are on a server apart, which nothing happens to.
func failover(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	data, err := pgserver.Init(ctx)
	if err != nil {
		return r, notInstalled(err)
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	apartServer, err := data.Start(ctx, pgserver.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, apartServer.Close()) }()
	o.URL, o.HighWater = apartServer.URL(database), true
	if err := install(ctx, o.URL); err != nil {
		return r, err
	}
	c, err := prepare(ctx, o, sc)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.cleanUp(ctx)) }()
	var facts model.Facts
	var failures []error
	for n := 1; n <= o.Rounds && ctx.Err() == nil; n++ {
		f := &failing{c: c, n: n, data: data, facts: &facts}
		word := "played"
		if err := f.play(ctx); err != nil {
			failures = append(failures, fmt.Errorf("round %d: %w", n, err))
			word = "failed: " + err.Error()
		}
		if o.Progress != nil && ctx.Err() == nil {
			fmt.Fprintf(o.Progress, "drill failover: round %d %s (%d of %d), %d tokens granted\n", n, word, n, o.Rounds, len(facts.Grants))
		}
	}
	if ctx.Err() != nil {
		return r, nil
	}
	verdict, err := askJudge(ctx, o.Self, question{place: o.place(), Run: c.run, Failover: &facts, Demand: model.Demand{Rounds: o.Rounds, Fenced: !o.Unfenced}})
	r = reportOf(verdict, failures)
	r.Check = string(guardMark)
	return r, err
}

// failing is one round of the drill.
type failing struct {
	c     *conductor
	n     int
	data  *pgserver.Data
	facts *model.Facts

	primary  *pgserver.Server
	link     *pgserver.Proxy
	standbys []*pgserver.Server
	closers  []func() error

	orders, stock holding
}

// holding is a lease of the lost branch, and who holds it there and on the new one.
type holding struct {
	r         *round
	old, next *process
}

// play plays the round, and ends all that it started.
func (f *failing) play(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*roundBound)
	defer cancel()
	f.orders.r, f.stock.r = f.c.newRound(2*f.n-1, 1), f.c.newRound(2*f.n, 1)
	defer func() {
		f.orders.r.end()
		f.stock.r.end()
		for _, end := range f.closers {
			err = errors.Join(err, end())
		}
	}()
	for _, step := range []func(context.Context) error{f.build, f.lose, f.takeOver, f.branchOff, f.residue} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// build starts a primary with the schema and its standbys, which reach it over a link that can be cut.
func (f *failing) build(ctx context.Context) error {
	var err error
	if f.primary, err = f.data.Start(ctx, pgserver.Options{}); err != nil {
		return err
	}
	f.closers = append(f.closers, f.primary.Close)
	if err := install(ctx, f.primary.URL(database)); err != nil {
		return err
	}
	// As if it had been installed long ago and its server started just now.
	prepare := `UPDATE tenure.authority SET origin = origin - interval '` + age + `', started = 'epoch'`
	if f.c.o.Unfenced {
		prepare = noJump + `; UPDATE tenure.authority SET started = 'epoch'`
	}
	if err := f.primary.Exec(ctx, database, prepare); err != nil {
		return err
	}
	if f.link, err = pgserver.StartProxy(ctx, f.primary.Addr()); err != nil {
		return err
	}
	f.closers = append(f.closers, f.link.Close)
	f.standbys = make([]*pgserver.Server, standbys)
	failures := make([]error, standbys)
	var all sync.WaitGroup
	for i := range f.standbys {
		all.Go(func() { f.standbys[i], failures[i] = f.primary.Standby(ctx, pgserver.Options{Via: f.link.Addr()}) })
	}
	all.Wait()
	for _, s := range f.standbys {
		if s != nil {
			f.closers = append(f.closers, s.Close)
		}
	}
	return errors.Join(failures...)
}

// noJump is the function of the schema that enters a new incarnation, with what it is for left out.
const noJump = `CREATE OR REPLACE FUNCTION tenure.enter_incarnation() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE tenure.authority SET timeline = tenure.timeline(), started = pg_postmaster_start_time();
END $$`

// lose has the primary grant what reaches the standbys, then what does not, and kills it.
func (f *failing) lose(ctx context.Context) error {
	url := f.primary.URL(database)
	if err := f.grant(ctx, url, model.Primary, counter, 5); err != nil {
		return err
	}
	var err error
	// The holder whose renewals are to be lost: its grant arrives.
	if f.stock.old, err = f.hold(ctx, &f.stock, url, "C", stockTTL, model.Primary); err != nil {
		return err
	}
	for _, s := range f.standbys {
		if err := f.primary.WaitCaughtUp(ctx, s); err != nil {
			return err
		}
	}
	f.link.SetMode(pgserver.Refuse)
	f.link.Cut()
	if err := f.grant(ctx, url, model.Unshipped, counter, bulk); err != nil {
		return err
	}
	// The holder whose grant is lost.
	if f.orders.old, err = f.hold(ctx, &f.orders, url, "A", orderTTL, model.Unshipped); err != nil {
		return err
	}
	// Two renewals that only the primary knows of.
	if err := steps(ctx, f.stock.old, command{Op: opRenewed}, command{Op: opRenewed}); err != nil {
		return err
	}
	return f.primary.Crash(ctx)
}

// hold starts a worker that acquires, reads and writes: the old holder of a lease, or the new one.
func (f *failing) hold(ctx context.Context, h *holding, url, who string, ttl time.Duration, branch model.Branch) (*process, error) {
	h.r.at = place{URL: url}
	p, err := h.r.spawn(who)
	if err != nil {
		return nil, err
	}
	err = steps(ctx, p, command{Op: opSession, Owner: owner(who), TTL: millis(ttl), Margin: millis(ttl / 6)},
		command{Op: opAcquire, Name: h.r.name, Wait: millis(acquireWait)})
	if err != nil {
		return nil, err
	}
	claim, err := fence.ParseClaim(p.claimText())
	if err != nil {
		return nil, err
	}
	f.granted(branch, claim.Name, claim.Token)
	return p, nil
}

func (f *failing) granted(branch model.Branch, name string, token fence.Token) {
	f.facts.Grants = append(f.facts.Grants, model.Grant{Round: f.n, Branch: branch, Name: name, Token: token})
}

// takeOver promotes a standby, has it grant what the lost branch had granted, and has the old holders send their writes.
func (f *failing) takeOver(ctx context.Context) error {
	if err := steps(ctx, f.orders.old, command{Op: opRead}, command{Op: opWrite, Element: "a-1"}, command{Op: opRead}); err != nil {
		return err
	}
	if err := steps(ctx, f.stock.old, command{Op: opRead}, command{Op: opWrite, Element: "c-1"}, command{Op: opRead}); err != nil {
		return err
	}
	s := f.standbys[0]
	if err := s.Promote(ctx); err != nil {
		return err
	}
	if err := f.grant(ctx, s.URL(database), model.Promoted, counter, bulk); err != nil {
		return err
	}
	for _, next := range []struct {
		h   *holding
		who string
		ttl time.Duration
	}{{&f.orders, "B", orderTTL}, {&f.stock, "D", stockTTL}} {
		h := next.h
		var err error
		if h.next, err = f.hold(ctx, h, s.URL(database), next.who, next.ttl, model.Promoted); err != nil {
			return err
		}
		_, err = h.old.call(ctx, command{Op: opCheck}) // does it still believe that it holds?
		if no := new(workerError); err != nil && !errors.As(err, &no) {
			return err
		}
		f.facts.Beliefs = append(f.facts.Beliefs, model.Belief{Round: f.n, Name: h.r.name, Believes: err == nil})
		if err := steps(ctx, h.next, command{Op: opRead}, command{Op: opWrite, Element: next.who + "-1"}); err != nil {
			return err
		}
		if err := h.r.late(ctx, h.old); err != nil {
			return err
		}
	}
	f.orders.r.end()
	f.stock.r.end()
	return nil
}

// branchOff has every other branch of the same history grant: a second standby, a copy of the dead primary, and that itself.
func (f *failing) branchOff(ctx context.Context) error {
	second := f.standbys[1]
	if err := second.Promote(ctx); err != nil {
		return err
	}
	if err := f.grant(ctx, second.URL(database), model.Second, counter, bulk); err != nil {
		return err
	}
	if err := f.grant(ctx, second.URL(database), model.Second, f.orders.r.name, 1); err != nil {
		return err
	}
	copied, err := f.primary.Copy(ctx, pgserver.Options{})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, copied.Close)
	if err := f.grant(ctx, copied.URL(database), model.Copied, counter, bulk); err != nil {
		return err
	}
	if err := f.primary.Restart(ctx); err != nil {
		return err
	}
	return f.grant(ctx, f.primary.URL(database), model.Returned, counter, bulk)
}

// write writes what a failover came to, for people.
func writeFailover(t io.Writer, f *model.Failover) {
	fmt.Fprintf(t, "branch of the history\tgrants\trepeated\tfirst and last token of the last round\n")
	for _, b := range f.Branches {
		fmt.Fprintf(t, "  %s\t%d\t%d\t%d .. %d\n", b.Branch, b.Grants, b.Repeated, b.First, b.Last)
	}
	fmt.Fprintf(t, "tokens over all branches, the residue below apart\t%d granted, %d repeated, %d not above the earlier ones\n", f.Judged(), f.Repeated, f.Fallen)
	fmt.Fprintf(t, "what does not survive: exclusivity in time\t%d of %d successors were granted while the former holder believed to hold\n", f.Believers, f.Successors)
	fmt.Fprintf(t, "  %s\n", notExclusive)
	if f.RaisedGrants > 0 {
		fmt.Fprintf(t, "the residue, a new branch whose clock is behind\t%d tokens repeated; raising the epoch above the lost ones: %d of %d repeated\n",
			f.BehindRepeated, f.RaisedRepeated, f.RaisedGrants)
		fmt.Fprintf(t, "  claim of the lost branch, above what it knows\trefused as ahead: %d; its name stopped until the epoch was raised: %d\n", f.AheadRefused, f.AheadStopped)
	}
}

// notExclusive says what docs/guarantees.md says of PostgreSQL.
const notExclusive = "A failover that loses commits loses renewals and grants with them: exclusivity in time does not survive it, the order of tokens does."
