package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/outbox"
)

// carrying changes what a carrier does, and no other process.
func carrying(m manner) func(*worker) {
	return func(w *worker) {
		if w.Mail != nil {
			w.Mail.Manner = m
		}
	}
}

// carryingLate changes the one that is late.
func carryingLate(m manner) func(*worker) {
	return func(w *worker) {
		if w.Name == "A" {
			carrying(m)(w)
		}
	}
}

// mailOptions are the options of a drill on each kind of store.
func mailOptions(t *testing.T, scenario, twin string) []Options {
	t.Helper()
	return []Options{options(t, scenario, twin, 1), onPostgres(t, scenario, twin, 1)}
}

// nothingPending looks for what a drill about messages left.
func nothingPending(o Options) (err error) {
	ctx := context.Background()
	store, err := o.place().site().open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	box, err := mailboxOf(store)
	if err != nil {
		return err
	}
	left, err := box.List(ctx, outbox.ListRequest{States: []outbox.State{outbox.Pending}, Limit: outbox.MaxList})
	if len(left) > 0 {
		err = fmt.Errorf("left: %+v", left)
	}
	if o.URL != "" {
		return errors.Join(err, nothingLeft(o))
	}
	return errors.Join(err, noTables(o.Path))
}

// TestMail: each drill about messages, damage without what prevents it, none with, on both kinds of store, and nothing is left.
func TestMail(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, sc := range mailScenarios() {
		for _, unfenced := range []bool{false, true} {
			for _, o := range mailOptions(t, sc.Name, "sound") {
				o.Unfenced = unfenced
				cases = append(cases, func(*testing.T) error { return soundMail(o) })
			}
		}
	}
	together(t, cases)
}

func soundMail(o Options) error {
	r, err := Run(context.Background(), o)
	variants := mailVariants(o.Scenario, o.Unfenced)
	bad := func() error {
		return fmt.Errorf("%s, unfenced %v, on %s: %+v, messages %+v, %w", o.Scenario, o.Unfenced, o.Store, r, r.Mail, err)
	}
	if err != nil || !r.OK || r.Mail == nil || len(r.Mail.Variants) != len(variants) {
		return bad()
	}
	late := 0
	for i, v := range variants {
		late += len(v.want.Late)
		if got := r.Mail.Variants[i]; got.Name != v.want.Name || !got.OK || got.Rounds != o.Rounds || got.Shows == "" || (got.Damaged == got.Rounds) != o.Unfenced {
			return bad()
		}
		if o.Unfenced && r.Mail.Damage[v.want.Damage] == 0 {
			return bad()
		}
	}
	if m := r.Mail; m.LateSent != late || !o.Unfenced && (m.LateTaken != 0 || len(m.Damage) > 0) {
		return bad()
	}
	return nothingPending(o)
}

// TestMailBroken: each drill about messages fails with carriers that are broken, and the judging process sees why.
func TestMailBroken(t *testing.T) {
	t.Parallel()
	hurt := func(kinds ...model.Damage) func(Report) bool {
		return func(r Report) bool {
			return !slices.ContainsFunc(kinds, func(k model.Damage) bool { return r.Mail.Damage[k] == 0 })
		}
	}
	invalid := func(r Report) bool { return len(r.InvalidRounds) > 0 }
	var cases []func(t *testing.T) error
	for i, c := range []struct {
		scenario, twin string
		shows          func(r Report) bool
	}{
		{"dead-relay", "new-ids", hurt(model.EffectTwice)},
		{"late-ack", "deaf", hurt(model.AckedStale)},
		{"late-ack", "mute", invalid},
		{"paused-relay", "new-ids", hurt(model.EffectTwice, model.OldOverNew)},
		{"paused-relay", "mute", invalid},
		{"poison", "gives-up", says("poison was refused 1 times, want 3")},
		{"poison", "leaps", hurt(model.PassedOver)},
	} {
		o := mailOptions(t, c.scenario, c.twin)[i%2]
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			if err != nil || r.OK || r.Mail == nil || !c.shows(r) {
				return fmt.Errorf("%s with %s is ok, or not for another reason: %+v, messages %+v, %w", c.scenario, c.twin, r, r.Mail, err)
			}
			return nothingPending(o)
		})
	}
	together(t, cases)
}

// TestMailInterrupted: a drill that is ended leaves neither tables nor messages that a relay would publish.
func TestMailInterrupted(t *testing.T) {
	t.Parallel()
	o := options(t, "dead-relay", "sound", 200)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = writerFunc(func() { cancel() }) // a round is over, and others are being played
	r, err := Run(ctx, o)
	if !errors.Is(err, ErrInterrupted) || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	if err := nothingPending(o); err != nil {
		t.Error(err)
	}
}
