package drill

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/internal/upstream"
)

// The guards that are broken on purpose.

// turnlessTwin lets requests in beside each other.
func turnlessTwin(w *worker) { w.door = func(c *upstream.Config) { c.Turns = nil } }

// impatientTwin gives a turn up while the service is at work.
func impatientTwin(w *worker) {
	w.door = func(c *upstream.Config) { c.GiveUp = 1500 * time.Millisecond }
}

// lenientTwin lets every claim in.
func lenientTwin(w *worker) {
	w.door = func(c *upstream.Config) {
		c.Check = fencehttp.CheckFunc(func(context.Context, string, fence.Claim) error { return nil })
	}
}

// TestFenceHTTP: damage without a guard and without turns, none with both, on both kinds of store, and nothing is left.
func TestFenceHTTP(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		for _, o := range []Options{options(t, "fence-http", "sound", 2), onPostgres(t, "fence-http", "sound", 2)} {
			o.Unfenced = unfenced
			cases = append(cases, func(*testing.T) error {
				r, err := Run(context.Background(), o)
				late, accepted := 2*o.Rounds, 0 // of two variants
				if unfenced {
					accepted = late
				}
				if err != nil || !r.OK || len(r.Variants) != 2 || r.LateWritesSent != late || r.AcceptedStale != accepted || r.RefusedStale != late-accepted ||
					r.LostUpdates < accepted || !unfenced && r.LostUpdates > 0 || r.SuccessorWrites < late || r.Reclaims != late {
					return fmt.Errorf("unfenced %v on %s: %+v, %w", unfenced, o.Store, r, err)
				}
				if o.URL != "" {
					return nothingLeft(o)
				}
				return noTables(o.Path)
			})
		}
	}
	few(t, cases)
}

// few runs two drills at a time: each round has five processes.
func few(t *testing.T, cases []func(t *testing.T) error) {
	t.Helper()
	for pair := range slices.Chunk(cases, 2) {
		together(t, pair)
	}
}

// TestFenceHTTPBroken: the drill fails with a guard that is broken, and the judging process sees why.
func TestFenceHTTPBroken(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	lost := func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates >= 2 }
	for twin, shows := range map[string]func(r Report) bool{
		"turnless":  lost,
		"impatient": lost,
		"lenient":   lost,
		"silent":    func(r Report) bool { return len(r.InvalidRounds) == 2 },
	} {
		o := options(t, "fence-http", twin, 1)
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			if err != nil || r.OK || !shows(r) {
				return fmt.Errorf("with %s: %+v, %w", twin, r, err)
			}
			return noTables(o.Path)
		})
	}
	few(t, cases)
}
