package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/store/sqlite"
)

// options are those of a drill on a file of its own, played with a twin.
func options(t *testing.T, scenario, twin string, rounds int) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.db")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Scenario: scenario, Path: path, Store: "sqlite:" + path, Rounds: rounds, Self: []string{self, partWord, twin}}
}

// together runs many drills at a time: they wait more than they work.
func together(t *testing.T, cases []func(t *testing.T) error) {
	t.Helper()
	const atOnce = 6
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, run := range cases {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := run(t); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// sound is what each drill must come to without and with enforcement.
func sound(o Options) error {
	r, err := runRelaxed(o)
	if err != nil {
		return fmt.Errorf("%s, unfenced %v: %w", o.Scenario, o.Unfenced, err)
	}
	sc, _ := find(o.Scenario)
	late := o.Rounds * sc.demand.Late
	if o.Scenario == "story" {
		late = 3 * o.Rounds
	}
	accepted, refused := 0, late
	if o.Unfenced {
		accepted, refused = late, 0
	}
	if !r.OK || r.LateWritesSent != late || r.AcceptedStale != accepted || r.RefusedStale != refused || r.SuccessorWrites < o.Rounds {
		return fmt.Errorf("%s, unfenced %v: %+v", o.Scenario, o.Unfenced, r)
	}
	if o.Scenario == "short-ttl" && r.Reclaims != 2*o.Rounds || o.Scenario == "duplicate-release" && r.Reclaims != 0 {
		return fmt.Errorf("%s, unfenced %v: reclaims: %+v", o.Scenario, o.Unfenced, r)
	}
	if o.Unfenced && o.Scenario != "story" && r.LostUpdates < o.Rounds || !o.Unfenced && r.LostUpdates > 0 {
		return fmt.Errorf("%s, unfenced %v: lost updates: %+v", o.Scenario, o.Unfenced, r)
	}
	return noTables(o.Path)
}

// runRelaxed is Run with a bound for the hand-over that holds on a machine with much else to do. The real one is measured by
// `tenure drill kill --rounds 100`.
func runRelaxed(o Options) (Report, error) {
	sc, err := o.complete()
	if err != nil || sc.demand.Handover == 0 {
		return Run(context.Background(), o)
	}
	sc.demand.Handover = 5 * time.Second
	return conduct(context.Background(), o, sc)
}

// noTables looks for what a drill left in the file.
func noTables(path string) error {
	if path == "" {
		return nil
	}
	names, err := tablesIn(path)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("tables left: %q", names)
	}
	return nil
}

func tablesIn(path string) (names []string, err error) {
	res, err := openResource(place{Path: path}, "x")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, res.close()) }()
	rows, err := res.db.Query(`SELECT name FROM sqlite_schema WHERE name GLOB 'tenure_drill_*'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// TestEveryDrill plays each drill, with the resource's checks and without.
func TestEveryDrill(t *testing.T) {
	var cases []func(t *testing.T) error
	for _, sc := range Scenarios() {
		if sc.whole != nil {
			continue
		}
		for _, unfenced := range []bool{false, true} {
			o := options(t, sc.Name, "sound", 2)
			o.Unfenced = unfenced
			cases = append(cases, func(*testing.T) error { return sound(o) })
		}
	}
	for _, name := range []string{"pause", "short-ttl", "reused-owner"} {
		o := options(t, name, "sound", 2)
		o.HighWater = true
		cases = append(cases, func(*testing.T) error { return sound(o) })
	}
	for _, unfenced := range []bool{false, true} {
		o := options(t, "story", "sound", 3)
		o.Path, o.Unfenced = "", unfenced
		cases = append(cases, func(*testing.T) error { return sound(o) })
	}
	together(t, cases)
}

// TestThroughTheAPI: the client refuses to send under the lease's context; under another the resource refuses.
func TestThroughTheAPI(t *testing.T) {
	o := options(t, "pause", "sound", 3)
	o.ThroughAPI = true
	r, err := Run(t.Context(), o)
	if err != nil || !r.OK || r.LateWritesSent != 3 || r.RefusedBeforeSending != 3 || r.RefusedStale != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestBrokenTwins: each drill fails where what it is about is broken.
func TestBrokenTwins(t *testing.T) {
	var cases []func(t *testing.T) error
	for _, c := range []struct {
		scenario, twin string
		shows          func(r Report) bool // how the drill must have noticed
	}{
		{"story", "blind", func(r Report) bool { return r.AcceptedStale == 6 && failedLines(r) == 6 }},
		{"story", "release-by-name", func(r Report) bool { return failedLines(r) > 0 }},
		{"pause", "silent", func(r Report) bool { return slices.Equal(r.InvalidRounds, []int{1, 2}) }},
		{"pause", "blind", func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }},
		{"pause", "apart", func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 }},
		{"pause", "leaky", says("nobody was told of", "and it is in the log")},
		{"lost-renewal", "blind", func(r Report) bool { return r.AcceptedStale == 2 }},
		{"lost-renewal", "silent", func(r Report) bool { return len(r.InvalidRounds) == 2 }},
		{"silent-renewal", "blind", func(r Report) bool { return r.AcceptedStale == 2 }},
		{"silent-renewal", "slow-clock", says("still believed to hold", "did not notice")},
		{"short-ttl", "blind", func(r Report) bool { return r.AcceptedStale == 4 }},
		{"short-ttl", "silent", func(r Report) bool { return len(r.InvalidRounds) == 2 }},
		{"missing-release", "early", says("still held it")},
		{"missing-release", "silent", func(r Report) bool { return len(r.InvalidRounds) == 2 }},
		{"delayed-release", "release-by-name", says("the rightful write")},
		{"duplicate-release", "release-by-name", says("the rightful write")},
		{"reused-owner", "label", func(r Report) bool { return r.AcceptedStale == 2 }},
		{"cancel-is-not-release", "release-on-cancel", says("the rightful write", "still worked under it")},
		{"cancel-is-not-release", "blind", func(r Report) bool { return r.AcceptedStale == 2 }},
		{"kill", "early", says("still held it")},
		{"kill", "lagging", func(r Report) bool { return r.Handover != nil && r.Handover.Within == 0 }},
	} {
		o := options(t, c.scenario, c.twin, 2)
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			switch {
			case err != nil:
				return fmt.Errorf("%s with %s: %w", c.scenario, c.twin, err)
			case r.OK:
				return fmt.Errorf("%s is ok with %s: %+v", c.scenario, c.twin, r)
			case !c.shows(r):
				return fmt.Errorf("%s with %s is not ok for another reason: %+v", c.scenario, c.twin, r)
			}
			return noTables(o.Path)
		})
	}
	together(t, cases)
}

func failedLines(r Report) int {
	n := 0
	for _, s := range r.Steps {
		if !s.Pass {
			n++
		}
	}
	return n
}

// says reports whether the problems contain one of the texts.
func says(texts ...string) func(Report) bool {
	return func(r Report) bool {
		all := strings.Join(r.Problems, "\n")
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(all, text) })
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	base := options(t, "pause", "sound", 1)
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"no such drill":          {func(o *Options) { o.Scenario = "pauze" }, ErrUnknownScenario},
		"pause in memory":        {func(o *Options) { o.Path = "" }, ErrOption},
		"api in another drill":   {func(o *Options) { o.Scenario, o.ThroughAPI = "kill", true }, ErrOption},
		"api without checks":     {func(o *Options) { o.ThroughAPI, o.Unfenced = true, true }, ErrOption},
		"two stores":             {func(o *Options) { o.URL = "postgres://127.0.0.1:1/x" }, ErrOption},
		"a mark in the story":    {func(o *Options) { o.Scenario, o.HighWater = "story", true }, ErrOption},
		"a mark and no checks":   {func(o *Options) { o.HighWater, o.Unfenced = true, true }, ErrOption},
		"a mark through the api": {func(o *Options) { o.HighWater, o.ThroughAPI = true, true }, ErrOption},
		"too many rounds":        {func(o *Options) { o.Rounds = MaxRounds + 1 }, ErrOption},
		"a negative number":      {func(o *Options) { o.Rounds = -1 }, ErrOption},
		"no way to start itself": {func(o *Options) { o.Self = nil }, ErrOption},
	} {
		o := base
		c.change(&o)
		if _, err := Run(t.Context(), o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(base.Path); err == nil {
			t.Fatalf("%s: the store was made", name)
		}
	}
}

// TestWorkersThatCannotStart: the drill says what is wrong, is not ok and leaves nothing.
func TestWorkersThatCannotStart(t *testing.T) {
	o := options(t, "pause", "no such twin", 2)
	r, err := Run(t.Context(), o)
	if err != nil || r.OK || len(r.InvalidRounds) != 2 || !says(`its last words: no twin "no such twin"`)(r) {
		t.Errorf("%+v, %v", r, err)
	}
	if err := noTables(o.Path); err != nil {
		t.Error(err)
	}
	o.Self = []string{filepath.Join(t.TempDir(), "nothing")}
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrProcess) {
		t.Errorf("without a program: %v", err)
	}
}

// TestAnInterruptedDrillLeavesNothing ends a drill while its workers are stopped.
func TestAnInterruptedDrillLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options(t, "pause", "sound", 3)
	sc, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan *process, o.Rounds)
	sc.play = func(ctx context.Context, r *round) error {
		a, err := r.holder(ctx, "a", 0)
		if err != nil {
			return err
		}
		if _, err := r.stopped(ctx, a, command{Element: "a-late"}); err != nil {
			return err
		}
		stopped <- a
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conduct(ctx, o, sc)
		ended <- err
	}()
	var workers []*process
	for range o.Rounds {
		select {
		case a := <-stopped:
			workers = append(workers, a)
		case err := <-ended:
			t.Fatalf("the drill ended by itself: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, a := range workers {
		if a.cmd.ProcessState == nil {
			t.Errorf("worker %d was left stopped", a.cmd.Process.Pid)
		}
	}
	if err := noTables(o.Path); err != nil {
		t.Error(err)
	}
	o = options(t, "pause", "sound", 1)
	if _, err := Run(ctx, o); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a drill that never began: %v", err)
	}
}

// TestDrillsShareAFile plays two drills on one file at a time, beside what an earlier one left when it was killed.
func TestDrillsShareAFile(t *testing.T) {
	o := options(t, "duplicate-release", "sound", 3)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: o.Path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Shutdown(context.Background()) }()
	left := map[string]bool{newRun(time.Now().Add(-25 * time.Hour)): true, newRun(time.Now().Add(-time.Hour)): false}
	for run := range left {
		res, err := openResource(place{Path: o.Path}, run)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(res.create(t.Context()), res.close()); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if r, err := Run(t.Context(), o); err != nil || !r.OK {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	both.Wait()
	names, err := tablesIn(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	for run, old := range left {
		got := len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.Contains(n, run) }))
		if old && got != 0 || !old && got != 4 {
			t.Errorf("of run %s %d tables are left", run, got)
		}
	}
	if len(names) != 4 {
		t.Errorf("left: %q", names)
	}
}
