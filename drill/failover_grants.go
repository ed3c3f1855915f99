package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// granter acquires and releases on one branch, and keeps the tokens.
type granter struct {
	f       *failing
	store   *postgres.Store
	session fence.ID
}

const granterTTL = 10 * time.Second

// on runs do with a store and a session on a branch's server.
func (f *failing) on(ctx context.Context, url string, do func(g *granter) error) (err error) {
	at, err := postgresSite{url: url}.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
		defer cancel()
		err = errors.Join(err, at.Shutdown(bound))
	}()
	store, ok := at.(*postgres.Store)
	if !ok {
		return fmt.Errorf("%w: %T is no store on PostgreSQL", ErrProcess, at)
	}
	g := &granter{f: f, store: store, session: lease.NewID()}
	if _, err := store.Open(ctx, lease.OpenRequest{ID: g.session, Owner: owner("branch"), TTL: granterTTL}); err != nil {
		return err
	}
	return errors.Join(do(g), store.Close(ctx, g.session))
}

// grant has a branch grant a name many times.
func (f *failing) grant(ctx context.Context, url string, branch model.Branch, name string, times int) error {
	err := f.on(ctx, url, func(g *granter) error { return g.many(ctx, branch, name, times) })
	if err != nil {
		return fmt.Errorf("%s: %w", branch, err)
	}
	return nil
}

func (g *granter) many(ctx context.Context, branch model.Branch, name string, times int) error {
	for range times {
		id := lease.NewID()
		grants, err := g.store.Acquire(ctx, lease.AcquireRequest{Session: g.session, ID: id, Names: []string{name}})
		if err != nil {
			return err
		}
		g.f.granted(branch, name, grants[0].Claim.Token)
		if _, err := g.store.Release(ctx, lease.ReleaseRequest{Session: g.session, ID: id, Names: []string{name}}); err != nil {
			return err
		}
	}
	_, err := g.store.Renew(ctx, lease.RenewRequest{Session: g.session})
	return err
}

// residue is what the jump of an incarnation cannot see: a branch whose clock is behind the lost one's. Its authority is as many hours younger.
func (f *failing) residue(ctx context.Context) error {
	if f.c.o.Unfenced {
		return nil // without the jump there is nothing that a clock could spoil
	}
	s := f.standbys[2]
	if err := s.Promote(ctx); err != nil {
		return err
	}
	if err := s.Exec(ctx, database, `UPDATE tenure.authority SET origin = origin + interval '`+behind+`'`); err != nil {
		return err
	}
	lost, err := fence.ParseClaim(f.orders.old.claimText())
	if err != nil {
		return err
	}
	return f.on(ctx, s.URL(database), func(g *granter) error {
		ahead := model.Ahead{Round: f.n}
		write := func(context.Context, execer) error { return nil }
		err := postgresSite{}.fenced(ctx, g.store, lost, write)
		if ahead.Refused = errors.Is(err, fence.ErrAhead); err != nil && !ahead.Refused {
			return err
		}
		err = g.many(ctx, model.ClockBehind, lost.Name, 1)
		if ahead.Stopped = errors.Is(err, fence.ErrAhead); err != nil && !ahead.Stopped {
			return err
		}
		// A name of which no such claim is seen is granted, and its tokens come again.
		if err := g.many(ctx, model.ClockBehind, counter, bulk); err != nil {
			return err
		}
		if _, err := g.store.RaiseEpoch(ctx, lost.Token); err != nil { // as `tenure epoch raise --above` does
			return err
		}
		for _, name := range []string{lost.Name, counter} {
			if err := g.many(ctx, model.Raised, name, 1); err != nil {
				return err
			}
		}
		ahead.Lifted = true
		f.facts.Ahead = append(f.facts.Ahead, ahead)
		return nil
	})
}
