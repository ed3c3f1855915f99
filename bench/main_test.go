package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/sqlite"
)

// TestMain lets this binary be a process of the processes benchmark, as the command is.
func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(runChild(context.Background(), config, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// closeAfter closes what a test has opened when it ends.
func closeAfter(t *testing.T, end func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		if err := end(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestQuickRuns runs every benchmark for a moment: each leaves a report with figures in every table.
func TestQuickRuns(t *testing.T) {
	out := t.TempDir()
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"--quick", "--all", "--out", out}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr.String())
	}
	for _, b := range benchmarks() {
		reports, err := report.ReadAll(out, []string{b.name})
		if err != nil {
			t.Error(err)
			continue
		}
		checkFilled(t, reports[0])
		if !strings.Contains(stdout.String(), "== "+b.name+":") {
			t.Errorf("%s printed no table", b.name)
		}
	}
	left, err := filepath.Glob(filepath.Join(out, "files-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("files were left behind: %v, %v", left, err)
	}
}

func checkFilled(t *testing.T, r *report.Report) {
	t.Helper()
	if r.Method == "" || !r.Settings.Quick || r.Machine.SQLite == "" {
		t.Errorf("%s: no method, not marked as quick, or no machine: %+v", r.Name, r)
	}
	if len(r.Tables) == 0 {
		t.Errorf("%s has no table", r.Name)
	}
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			if len(row.Cells) != len(table.Columns) {
				t.Errorf("%s, %s %s: %d cells in %d columns", r.Name, table.Title, row.Label, len(row.Cells), len(table.Columns))
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--list"}, 0, "commit"},
		{[]string{"--list", "--only", "renewal"}, 0, "renewal"},
		{[]string{"--only", "nothing"}, exitUsage, `no benchmark "nothing"`},
		{[]string{"--only", "commit,commit"}, exitUsage, `no benchmark "commit"`},
		{[]string{"--all", "--only", "commit"}, exitUsage, "contradict"},
		{[]string{"--rounds", "-1"}, exitUsage, "--rounds -1"},
		{[]string{"--seconds", "-1"}, exitUsage, "--seconds -1"},
		{[]string{"commit"}, exitUsage, `"commit"`},
		{[]string{"--nonsense"}, exitUsage, "nonsense"},
		{[]string{"--help"}, 0, "-quick"},
	} {
		var out strings.Builder
		if code := run(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: exit %d, want %d, and text with %q: %s", c.args, code, c.code, c.says, out.String())
		}
	}
}

// TestStrictFailsOnAMiss: a quick run misses nothing on purpose, so the benchmark is one that cannot reach its target.
func TestStrictFailsOnAMiss(t *testing.T) {
	miss := benchmark{"miss", "A target that is missed", func(_ context.Context, _ *plan, r *report.Report) error {
		r.Targets = []report.Target{{What: "one", Must: "=", Limit: 1, Got: 2}}
		return nil
	}}
	var out strings.Builder
	o := options{out: t.TempDir(), quick: true}
	if err := runAll(t.Context(), o, []benchmark{miss}, &out, &out); err != nil {
		t.Errorf("without --strict: %v", err)
	}
	o.strict = true
	if err := runAll(t.Context(), o, []benchmark{miss}, &out, &out); err == nil || !strings.Contains(err.Error(), "1 targets") {
		t.Errorf("with --strict: %v, want an error", err)
	}
}

// TestOneFailureDoesNotHideTheOthers: the benchmark after a failed one still runs, and the failure is told.
func TestOneFailureDoesNotHideTheOthers(t *testing.T) {
	broken := errors.New("broken")
	ran := false
	chosen := []benchmark{
		{"first", "fails", func(context.Context, *plan, *report.Report) error { return broken }},
		{"second", "runs", func(context.Context, *plan, *report.Report) error { ran = true; return nil }},
	}
	var out strings.Builder
	err := runAll(t.Context(), options{out: t.TempDir(), quick: true}, chosen, &out, &out)
	if !errors.Is(err, broken) || !ran {
		t.Errorf("error %v, second ran %v", err, ran)
	}
}

func TestDriveCountsWhatItMeasures(t *testing.T) {
	const goroutines = 4
	s := subject{name: "counting", cycle: func(ctx context.Context, _, _ int) (time.Duration, error) {
		return 2 * time.Millisecond, pause(ctx, time.Millisecond)
	}}
	got, err := drive(t.Context(), s, goroutines, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// A cycle takes 1 ms or more, so more than 1,000 a second each would be counting what did not happen.
	if got.rate <= 0 || got.rate > goroutines*1100 {
		t.Errorf("rate %v from %d goroutines of at most 1,000 each", got.rate, goroutines)
	}
	if len(got.acquire) == 0 || got.acquire[0] != 2000 {
		t.Errorf("acquires %v, want 2000 us each", got.acquire)
	}
}

// TestDriveStopsAtAnError: a benchmark of calls that fail would be very fast.
func TestDriveStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	s := subject{name: "failing", cycle: func(ctx context.Context, g, n int) (time.Duration, error) {
		if g == 1 && n == 3 {
			return 0, broken
		}
		return 0, ctx.Err()
	}}
	if _, err := drive(t.Context(), s, 2, time.Hour); !errors.Is(err, broken) {
		t.Errorf("drive = %v, want the subject's error, at once", err)
	}
}

// TestClosedBelowIsTheLowestInFlight: a client that closed more would be refused, one that closed less would be slow.
func TestClosedBelowIsTheLowestInFlight(t *testing.T) {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "t.db")})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, store.Shutdown)
	c, err := newClient(t.Context(), store, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first, second := c.ids.New(), c.ids.New()
	a := c.flight.PushBack(first)
	c.flight.PushBack(second)
	if got := c.closedBelow(); got != first {
		t.Errorf("closed below %v, want the first id %v", got, first)
	}
	c.flight.Remove(a)
	if got := c.closedBelow(); got != second {
		t.Errorf("closed below %v, want the second id %v", got, second)
	}
	c.flight.Init()
	if got := c.closedBelow(); !second.Less(got) {
		t.Errorf("closed below %v with nothing in flight, want an id above %v", got, second)
	}
	id, grants, err := c.acquire(t.Context(), "a", "b")
	if err != nil || len(grants) != 2 {
		t.Fatalf("acquire: %v, %v", grants, err)
	}
	if err := c.renew(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.release(t.Context(), id, "a", "b"); err != nil {
		t.Error(err)
	}
	if c.flight.Len() != 0 {
		t.Errorf("%d ids are left in flight", c.flight.Len())
	}
}

// TestLockedErrorsAreFound: the target of none would be reached for ever by a count that sees none.
func TestLockedErrorsAreFound(t *testing.T) {
	var r childResult
	r.note(nil)
	r.note(errors.New("a quiet error"))
	r.note(errors.Join(errors.New("acquire"), errors.New("Database is LOCKED (5)")))
	if r.Errors != 2 || r.Locked != 1 || r.Sample != "a quiet error" {
		t.Errorf("%+v, want 2 errors, 1 of them locked", r)
	}
}

// TestAStarvedProcessIsNotFair: its ratio would be infinite, and must not come out as reached.
func TestAStarvedProcessIsNotFair(t *testing.T) {
	if got := spreadOrWorst([]float64{0, 26_306}); got <= 2 {
		t.Errorf("spread %v, want far above 2", got)
	}
	if got := spreadOrWorst([]float64{1000, 1500}); got != 1.5 {
		t.Errorf("spread %v, want 1.5", got)
	}
}

// TestCountersSeeLeaseRows: the renewal benchmark's triggers would show a renewal that writes lease rows.
func TestCountersSeeLeaseRows(t *testing.T) {
	s := &renewalSide{path: filepath.Join(t.TempDir(), "t.db"), leases: 10}
	closeAfter(t, s.close)
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	renewAndTouch := func(ctx context.Context) error {
		if _, err := s.db.ExecContext(ctx, `UPDATE tenure_lease SET over_at = over_at`); err != nil {
			return err
		}
		return renewTimes(ctx, s.many, renewalsCounted)
	}
	written, err := s.countRows(t.Context(), renewAndTouch)
	if err != nil {
		t.Fatal(err)
	}
	if written["tenure_lease"]*renewalsCounted != 10 || written["tenure_session"] != 1 {
		t.Errorf("written %v, want 10 rows of leases in all and one of sessions a renewal", written)
	}
	if _, err := s.db.ExecContext(t.Context(), `SELECT * FROM bench_written`); err == nil {
		t.Error("the counting table is still there")
	}
}

func TestEverySideOfFencedChecks(t *testing.T) {
	f := &fencedSide{}
	closeAfter(t, f.close)
	if err := f.open(t.Context(), filepath.Join(t.TempDir(), "t.db")); err != nil {
		t.Fatal(err)
	}
	good := f.claim
	f.claim.Token++ // never issued
	for _, check := range f.checks() {
		if check.do == nil {
			continue
		}
		if err := f.transact(t.Context(), check); !errors.Is(err, fence.ErrAhead) {
			t.Errorf("%s under a token that was never issued: %v, want ErrAhead: else nothing is checked", check.name, err)
		}
	}
	f.claim = good
	for _, check := range append(f.checks(), check{name: viaFenced}) {
		if err := f.transact(t.Context(), check); err != nil {
			t.Errorf("%s under the claim: %v", check.name, err)
		}
	}
}

// TestOthersShareIsAShare: what this process burns is not the others', and no figure leaves 0 to 1.
func TestOthersShareIsAShare(t *testing.T) {
	share := othersShare()
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
	}
	got := share()
	if _, _, ok := processorTimes(); !ok {
		if got != nil {
			t.Errorf("a share of %v from what cannot be read", *got)
		}
		return
	}
	if got == nil || *got < 0 || *got > 1 {
		t.Errorf("share %v, want 0 to 1", got)
	}
}
