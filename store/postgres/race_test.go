package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// raceSeconds is how long the race runs; 60 is the full length.
const raceSeconds = "TENURE_POSTGRES_RACE_SECONDS"

func raceTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(raceSeconds)
	if text == "" {
		return 6 * time.Second
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 1 {
		t.Fatalf("%s=%q: want a number of seconds", raceSeconds, text)
	}
	return time.Duration(seconds) * time.Second
}

const (
	raceTTL     = 300 * time.Millisecond
	raceMargin  = 2 * time.Millisecond // both clocks are this machine's
	raceNames   = 24
	raceWorkers = 4 // of each session
)

// course is one race: what its clients share.
type course struct {
	t       testing.TB
	clock   func() time.Duration // the boot clock, which all processes share
	history history
	over    context.Context
	counts  [6]atomic.Int64 // see below
	lenient bool            // calls may stay without an answer
	rules   []rule          // nil: all
	stepped bool            // the clock is moved meanwhile, by updates that keep no order of locks
}

const (
	countGrants = iota
	countAbandoned
	countTombstones
	countClosed
	countUnanswered
	countReplays
)

func (c *course) now() time.Duration { return c.clock() }

// pause waits; it is false when the race is over.
func (c *course) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.over.Done():
		return false
	}
}

// fail reports what no client may be told here.
func (c *course) fail(op string, err error) {
	switch {
	case err == nil, errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrEnded):
	case errors.Is(err, lease.ErrUnknown), errors.Is(err, lease.ErrUnavailable):
		c.counts[countUnanswered].Add(1)
		if !c.lenient {
			c.t.Errorf("%s: %v", op, err)
		}
	default:
		c.t.Errorf("%s: %v", op, err)
	}
}

// run lets sessions of a store race for the same names until ctx ends.
func (c *course) run(ctx context.Context, t testing.TB, s *Store, sessions int) {
	t.Helper()
	c.t, c.clock, c.over = t, clock.Boot(), ctx
	names := make([]string, raceNames)
	for i := range names {
		names[i] = fmt.Sprintf("n%02d", i)
	}
	var racers sync.WaitGroup
	for range sessions {
		racers.Go(func() { c.live(s, names) })
	}
	racers.Wait()
	t.Logf("%d grants, %d sessions abandoned, %d closed, %d releases beside their acquires, %d late duplicates, %d calls without an answer", c.counts[countGrants].Load(),
		c.counts[countAbandoned].Load(), c.counts[countClosed].Load(), c.counts[countTombstones].Load(), c.counts[countReplays].Load(), c.counts[countUnanswered].Load())
	if c.counts[countGrants].Load() == 0 || c.counts[countAbandoned].Load() == 0 || c.counts[countClosed].Load() == 0 || c.counts[countTombstones].Load() == 0 {
		t.Error("the race was no race")
	}
}

// judge looks at what all clients of a race were told, and at what is in the database.
func (r *rig) judge(c *course) {
	r.t.Helper()
	if c.rules == nil {
		c.rules = allRules()
	}
	if err := c.history.check(c.rules...); err != nil {
		r.t.Error(err)
	}
	if err := r.Check(context.Background()); err != nil {
		r.t.Error(err)
	}
	if n, log := deadlocks(r.harness); n > 0 && !c.stepped {
		r.t.Errorf("%d deadlocks: %s", n, log)
	}
}

// race is run and judged in this process alone.
func (r *rig) race(ctx context.Context, c *course, sessions int) {
	r.t.Helper()
	c.run(ctx, r.t, r.store, sessions)
	r.judge(c)
}

// What the other process of a race gets to know.
const (
	raceURL  = "TENURE_POSTGRES_RACE_URL"
	raceFile = "TENURE_POSTGRES_RACE_FILE" // where it writes its history
)

// TestRace: two processes, with three sessions each: batches in whatever order, take-overs from each other, releases beside their acquires, closes
// beside waiting acquires, late duplicates.
func TestRace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), raceTime(t))
	defer cancel()
	if url := os.Getenv(raceURL); url != "" {
		raceElsewhere(ctx, t, url)
		return
	}
	r := &rig{t: t, harness: newHarness(t)}
	file := filepath.Join(t.TempDir(), "history")
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRace$", "-test.v")
	other.Env = append(os.Environ(), raceURL+"="+r.url(), raceFile+"="+file)
	done := start(func() error {
		output, err := other.CombinedOutput()
		t.Logf("the other process: %s", output)
		return err
	})
	c := &course{}
	c.run(ctx, t, r.store, 3)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		Grants   []grantTold
		Renewals []renewalTold
	}
	if err := json.Unmarshal(text, &told); err != nil || len(told.Grants) == 0 {
		t.Fatalf("the other process was told %d grants, %v", len(told.Grants), err)
	}
	c.history.grants, c.history.renewals = append(c.history.grants, told.Grants...), append(c.history.renewals, told.Renewals...)
	r.judge(c)
}

// raceElsewhere is the other process.
func raceElsewhere(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	c := &course{}
	c.run(ctx, t, openStore(t, url, Options{}), 3)
	text, err := json.Marshal(map[string]any{"Grants": c.history.grants, "Renewals": c.history.renewals})
	if err == nil {
		err = os.WriteFile(os.Getenv(raceFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
