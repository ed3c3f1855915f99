package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// Two hundred callers in four processes want the last unit, again and again: of each item one gets it, and nobody hears anything but that, or that it is taken.
func TestLastUnitAmongSeveralProcesses(t *testing.T) {
	t.Parallel()
	const processes, callers, items = 4, 50, 20
	path := newPath(t)
	o := &office{t, openPath(t, path).Holds()}
	for i := range items {
		o.stock(1, seat(i))
	}
	children := make([]*child, 0, processes)
	for p := range processes {
		children = append(children, start(t, "hold callers", job{Path: path, Count: items, Claimers: callers, Names: []string{strconv.Itoa(p)}}))
	}
	for _, c := range children {
		c.hear("ready")
	}
	for _, c := range children {
		c.tell("go")
	}
	total := 0
	won := make([]int, 0, processes)
	for _, c := range children {
		n, err := strconv.Atoi(c.hear("won"))
		if err != nil {
			t.Fatal(err)
		}
		won, total = append(won, n), total+n
		c.hear("done")
	}
	if total != items {
		t.Errorf("%d callers were told that they have one of %d items", total, items)
	}
	for i := range items {
		o.item(seat(i), 1, 1, 0)
	}
	if err := checkHolds(t.Context(), plainDB(t, path, "")); err != nil {
		t.Error(err)
	}
	t.Logf("the processes won %v", won)
}

// playHoldCallers tries each item with each caller, and confirms what it gets.
func playHoldCallers(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	holds := s.Holds()
	process, err := strconv.Atoi(st.job.Names[0])
	if err != nil {
		return err
	}
	st.say("ready")
	st.await()
	var callers sync.WaitGroup
	var mu sync.Mutex
	won, errs := 0, []error{}
	for caller := range st.job.Claimers {
		callers.Go(func() {
			for i := range st.job.Count {
				n := (process*st.job.Claimers+caller)*st.job.Count + i
				err := sellOne(ctx, holds, n, seat(i))
				mu.Lock()
				if err == nil {
					won++
				} else if !errors.Is(err, hold.ErrTaken) {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	st.say("won %d", won)
	return errors.Join(append(errs, s.Shutdown(ctx))...)
}

func sellOne(ctx context.Context, holds *Holds, n int, item string) error {
	if _, err := holds.Place(ctx, placement(n, time.Minute, item)); err != nil {
		return err
	}
	h, err := holds.Confirm(ctx, payment(n))
	if err == nil && h.State != hold.Confirmed {
		err = fmt.Errorf("its own hold is %v", h.State)
	}
	return err
}

// playHoldChurn places, confirms and releases until it is killed, and says what was acknowledged, as soon as it was: "p" a hold, "c" a sale, "l" a late payment, "r" a release. Some holds expire
// in the meantime, and are sold to another.
func playHoldChurn(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	holds := s.Holds()
	from, err := strconv.Atoi(st.job.Names[0])
	if err != nil {
		return err
	}
	st.say("ready")
	for n := from; ; n++ {
		item := seat(n % st.job.Count)
		req := placement(n, time.Duration(1+n%3*n%3*20)*time.Millisecond, item, "common")
		if _, err := holds.Place(ctx, req); errors.Is(err, hold.ErrTaken) {
			continue
		} else if err != nil {
			return err
		}
		st.say("p %d", n)
		if n%7 == 0 {
			h, err := holds.Release(ctx, req.ID, req.Actor)
			if err != nil {
				return err
			}
			if h.State == hold.Released {
				st.say("r %d", n)
			}
			continue
		}
		if n%5 == 0 {
			continue // it expires
		}
		h, err := holds.Confirm(ctx, payment(n))
		if err != nil {
			return err
		}
		st.say("%s %d", map[hold.State]string{hold.Confirmed: "c", hold.Late: "l"}[h.State], n)
	}
}

// toldHolds is what processes were told of holds, over all rounds.
type toldHolds struct {
	t     *testing.T
	ended map[int]string
}

func (a *toldHolds) note(lines []string) {
	a.t.Helper()
	for _, line := range lines {
		what, text, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(text)
		if err != nil || !slices.Contains([]string{"p", "c", "l", "r"}, what) {
			a.t.Fatalf("a child said %q", line)
		}
		if former := a.ended[n]; former != "" && former != "p" {
			a.t.Fatalf("hold %d ended twice: %s, %s", n, former, what)
		}
		a.ended[n] = what
	}
}

// check compares it with the file.
func (a *toldHolds) check(path string) {
	a.t.Helper()
	if got := plainValue(a.t, path, `PRAGMA integrity_check`); got != "ok" {
		a.t.Fatal(got)
	}
	s := openPath(a.t, path)
	defer shutDown(a.t, s)
	o := &office{a.t, s.Holds()}
	if err := checkHolds(a.t.Context(), s.readDB); err != nil {
		a.t.Error(err)
	}
	sold := map[string]int{}
	for n, what := range a.ended {
		h := o.get(n)
		want := map[string]hold.State{"c": hold.Confirmed, "l": hold.Late, "r": hold.Released}[what]
		if what != "p" && h.State != want {
			a.t.Errorf("hold %d was told to be %v, the file says %v", n, want, h.State)
		}
		if want == hold.Confirmed || want == hold.Late {
			if h.Reference != payment(n).Reference {
				a.t.Errorf("hold %d: its payment is %q", n, h.Reference)
			}
		}
		if what == "c" {
			if sold[h.Lines[1].Item]++; sold[h.Lines[1].Item] > 1 {
				a.t.Errorf("%q was told as sold twice", h.Lines[1].Item)
			}
		}
	}
}

// Two processes sell from one file and are killed at any point, both or one of them. All that was acknowledged is in the file, nothing is sold twice, and what a killed process has held
// is free when its time has passed.
func TestHoldsKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	const items = 5000
	s := openPath(t, path)
	seats(t, s.Holds(), items)
	(&office{t, s.Holds()}).stock(1<<20, "common")
	shutDown(t, s)
	a := &toldHolds{t: t, ended: map[int]string{}}
	churns := 0
	churn := func() *child {
		churns++
		c := start(t, "hold churn", job{Path: path, Count: items, Names: []string{strconv.Itoa(churns * 1_000_003)}})
		c.hear("ready")
		return c
	}
	survivor := churn()
	for round := range killRounds(t) {
		victim := churn()
		<-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond) // the point of the kill is what is random here
		victim.kill()
		a.note(victim.rest())
		if round%8 == 7 {
			survivor.kill() // now nobody has the file open: the next opener recovers
			a.note(survivor.rest())
			a.check(path)
			survivor = churn()
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	survivor.kill()
	a.note(survivor.rest())
	a.check(path)
	counts := map[string]int{}
	for _, what := range a.ended {
		counts[what]++
	}
	if counts["c"] == 0 || counts["r"] == 0 || counts["p"] == 0 {
		t.Errorf("this test shows nothing: %v", counts)
	}
	t.Logf("told of %d holds: %v", len(a.ended), counts)
}

// holdSteps are a short history of holds, each step of which changes what the file holds. A historian makes it, and its log is cut at every sector.
func holdSteps(ctx context.Context, holds *Holds) []func() error {
	place := func(n int, ttl time.Duration, items ...string) func() error {
		return func() error { _, err := holds.Place(ctx, placement(n, ttl, items...)); return err }
	}
	return []func() error{
		func() error {
			return holds.Stock(ctx, []hold.Item{{Name: "one", Quantity: 1}, {Name: "two", Quantity: 2}})
		},
		place(1, time.Millisecond, "one", "two"),
		func() error {
			<-time.After(2 * time.Millisecond)
			return place(2, time.Hour, "one", "two")() // it frees the first
		},
		func() error { _, err := holds.Confirm(ctx, payment(1)); return err }, // late
		func() error { _, err := holds.Confirm(ctx, payment(2)); return err },
	}
}
