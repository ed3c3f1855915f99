package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// A session that was opened in the same batch has no row yet when another open's upkeep looks for what is over: what
// it was granted must not be taken for nobody's.
func TestUpkeepSparesTheSessionsOfItsBatch(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	g := holdWriter(t, s)
	first, second := lease.NewID(), lease.NewID()
	acquire := lease.AcquireRequest{Session: first, ID: lease.NewID(), Names: []string{"n"}}
	answers := make(chan error, 3)
	for i, call := range []func() error{
		func() error {
			_, err := s.Open(t.Context(), lease.OpenRequest{ID: first, TTL: time.Minute})
			return err
		},
		func() error { _, err := s.Acquire(t.Context(), acquire); return err },
		func() error {
			_, err := s.Open(t.Context(), lease.OpenRequest{ID: second, TTL: time.Minute})
			return err
		},
	} {
		go func() { answers <- call() }()
		waitQueued(t, s, i+1) // in this order
	}
	g.open()
	for range 3 {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if info := look(t, s, "n"); !info.Held || info.Acquisition != acquire.ID {
		t.Fatalf("the grant that was acknowledged: %+v", info)
	}
	acquire.Session, acquire.ID = second, lease.NewID()
	if _, err := s.Acquire(t.Context(), acquire); !errors.Is(err, lease.ErrHeld) {
		t.Fatalf("a second grant of the name: %v", err)
	}
}

// A call whose context ended may still be at work: it must not look at a slice that its caller uses for other things by now.
func TestRequestsKeepNoSliceOfTheCaller(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := join(t, s, time.Minute)
	entered, goOn := make(chan struct{}), make(chan struct{})
	hold := func(reached, until chan struct{}) {
		go func() {
			r := &request{op: "wait", do: func(*batch) error { close(reached); <-until; return nil }}
			if err := s.writer.do(t.Context(), r, true); err != nil {
				t.Error(err)
			}
		}()
	}
	hold(entered, goOn)
	<-entered
	names := []string{"asked"}
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: names})
		answer <- err
	}()
	waitQueued(t, s, 1)
	second, third := make(chan struct{}), make(chan struct{})
	hold(second, third)
	waitQueued(t, s, 2)
	close(goOn)
	<-second // the acquire is in the same batch, behind this one: it was taken
	cancel()
	if err := <-answer; !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("a call that was taken, after its context ended: %v", err)
	}
	names[0] = "other"
	close(third)
	if err := p.renew(); err != nil {
		t.Fatal(err)
	}
	if !look(t, s, "asked").Held || look(t, s, "other").Held {
		t.Errorf("asked: %+v, other: %+v", look(t, s, "asked"), look(t, s, "other"))
	}
}

// A token that no epoch can be raised to was made up: it is refused and stops nobody. Of those that could have been
// issued, a bounded number is remembered.
func TestMadeUpClaimsStopNobodyForEver(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := join(t, s, time.Minute)
	present := func(name string, token fence.Token) {
		t.Helper()
		claim := fence.Claim{Authority: s.Authority(), Name: name, Acquisition: lease.NewID(), Token: token}
		err := s.Fenced(t.Context(), claim, func(context.Context, *Tx) error { return nil })
		if !errors.Is(err, fence.ErrAhead) {
			t.Fatalf("a claim under token %d: %v", token, err)
		}
	}
	present("a", maxEpoch+5)
	if _, err := p.ask("a"); err != nil {
		t.Errorf("a token that cannot be: %v", err)
	}
	for i := range maxAhead + 3 {
		present(fmt.Sprintf("never/%d", i), 1<<40)
	}
	var rows int
	if err := s.readDB.QueryRow(`SELECT count(*) FROM tenure_ahead`).Scan(&rows); err != nil || rows != maxAhead {
		t.Errorf("%d names are stopped, %v", rows, err)
	}
	if _, err := s.RaiseEpoch(t.Context(), maxEpoch); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ask("never/1"); err != nil {
		t.Errorf("after the epoch was raised to the highest: %v", err)
	}
}
