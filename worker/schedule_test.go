package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

func every(name, spec string) worker.Schedule {
	return worker.Schedule{Name: name, Cron: spec, Make: func(at time.Time) (operation.SubmitRequest, error) {
		return charges().Request("", charge{Cents: at.Minute()})
	}}
}

func (w *world) schedule(o worker.SchedulerOptions, all ...worker.Schedule) (stop func() error) {
	w.t.Helper()
	s, err := worker.NewScheduler(w.store, o, all...)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.run(s.Run)
}

func (w *world) ids() (all []string) {
	w.t.Helper()
	found, err := w.store.List(context.Background(), operation.ListRequest{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, rec := range found {
		all = append(all, rec.ID)
	}
	return all
}

// TestOccurrenceIsOneOperation is L67: three hosts, whose clocks differ, have the same schedule. Each occurrence is submitted once, and one that was done is not done again.
func TestOccurrenceIsOneOperation(t *testing.T) {
	inBubble(t, func(w *world) {
		var runs atomic.Int32
		w.begin(w.options(), worker.Handle(plain(func(context.Context, *worker.Attempt) error { runs.Add(1); return nil })))
		for _, skew := range []time.Duration{0, 20 * time.Second, -20 * time.Second} {
			w.schedule(worker.SchedulerOptions{Now: func() time.Time { return time.Now().Add(skew) }}, every("tidy", "*/10 * * * *"))
		}
		pass(55*time.Minute + 30*time.Second) // the bubble begins at midnight
		if got := w.ids(); strings.Join(got, " ") != "tidy@2000-01-01T00:00Z tidy@2000-01-01T00:10Z tidy@2000-01-01T00:20Z tidy@2000-01-01T00:30Z tidy@2000-01-01T00:40Z tidy@2000-01-01T00:50Z" {
			if len(got) != 7 || got[0] != "tidy@1999-12-31T23:50Z" { // the one whose clock is behind began in the day before
				t.Errorf("%v", got)
			}
		}
		if n := len(w.ids()); int(runs.Load()) != n {
			t.Errorf("%d runs of %d occurrences", runs.Load(), n)
		}
	})
}

// TestTimeZones is T57: without a zone the host's own does not matter, nor what it does with its clocks; with one, a time in the hour that is left out occurs later, and one in the hour that comes twice occurs twice.
func TestTimeZones(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		zone *time.Location
		host *time.Location
		day  time.Time
		want string
	}{
		"UTC on a host in summer":  {nil, berlin, time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), "n@2026-03-29T02:30Z"},
		"UTC on a host in autumn":  {nil, berlin, time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), "n@2026-10-25T02:30Z"},
		"an hour that is left out": {berlin, time.UTC, time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), "n@2026-03-29T01:30Z"},
		"an hour that comes twice": {berlin, time.UTC, time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), "n@2026-10-25T00:30Z n@2026-10-25T01:30Z"},
		"another day":              {berlin, time.UTC, time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC), "n@2026-07-01T00:30Z"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				begun := time.Now()
				s := every("n", "30 2 * * *")
				s.Zone = c.zone
				w.schedule(worker.SchedulerOptions{Now: func() time.Time { return c.day.Add(time.Since(begun)).In(c.host) }}, s)
				pass(23 * time.Hour)
				if got := strings.Join(w.ids(), " "); got != c.want {
					t.Errorf("%q; want %q", got, c.want)
				}
			})
		})
	}
}

// What was missed: the latest within an hour is made up for, or none is.
func TestMissedOccurrences(t *testing.T) {
	for name, c := range map[string]struct {
		missed worker.Missed
		late   time.Duration
		want   string
	}{
		"latest":        {worker.Latest, 35 * time.Minute, "n@2000-01-01T12:30Z"},
		"latest, exact": {worker.Latest, 30 * time.Minute, "n@2000-01-01T12:30Z"},
		"skip":          {worker.Skip, 35 * time.Minute, ""},
		"skip, just":    {worker.Skip, 30*time.Minute + 20*time.Second, "n@2000-01-01T12:30Z"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s := every("n", "*/15 12 * * *")
				s.Missed = c.missed
				w.schedule(worker.SchedulerOptions{Now: func() time.Time { return time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC).Add(c.late) }}, s) // a clock that stands still
				pass(time.Minute)
				if got := strings.Join(w.ids(), " "); got != c.want {
					t.Errorf("%q; want %q", got, c.want)
				}
			})
		})
	}
}

// A store that is away, and a wall clock that is set back and forth, lose no occurrence and make none twice.
func TestScheduleSurvives(t *testing.T) {
	inBubble(t, func(w *world) {
		var step atomic.Int64
		var away atomic.Bool
		submit := submitter(func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
			if away.Load() {
				return operation.Submitted{}, &operation.UnavailableError{Op: "submit", Err: errPlain}
			}
			return w.store.Submit(ctx, req)
		})
		s, err := worker.NewScheduler(submit, worker.SchedulerOptions{Now: func() time.Time { return time.Now().Add(time.Duration(step.Load())) }}, every("n", "@hourly"))
		if err != nil {
			t.Fatal(err)
		}
		w.run(s.Run)
		pass(59 * time.Minute)
		away.Store(true)
		pass(10 * time.Minute)
		away.Store(false)
		pass(time.Minute)
		step.Store(int64(-30 * time.Minute))
		pass(time.Hour)
		step.Store(0)
		pass(time.Hour)
		if got := strings.Join(w.ids(), " "); got != "n@2000-01-01T00:00Z n@2000-01-01T01:00Z n@2000-01-01T02:00Z n@2000-01-01T03:00Z" {
			t.Errorf("%v", got)
		}
	})
}

type submitter func(context.Context, operation.SubmitRequest) (operation.Submitted, error)

func (s submitter) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	return s(ctx, req)
}

// Schedules that make no sense are refused, with what is wrong.
func TestInvalidSchedules(t *testing.T) {
	good := every("n", "@daily")
	noMake, within, twice := good, good, []worker.Schedule{good, good}
	noMake.Make = nil
	within.Within = 48 * time.Hour
	for name, all := range map[string][]worker.Schedule{
		"no name": {every("", "@daily")}, "six fields": {every("n", "* * * * * *")}, "a zone": {every("n", "TZ=Europe/Berlin 0 1 * * *")}, "every": {every("n", "@every 5s")},
		"the 30th of February": {every("n", "0 0 30 2 *")}, "nothing": {every("n", "")}, "no make": {noMake}, "too far back": {within}, "twice": twice,
	} {
		if _, err := worker.NewScheduler(submitter(nil), worker.SchedulerOptions{}, all...); !errors.Is(err, worker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Either of two days suffices, as in crontab(5).
func TestEitherDay(t *testing.T) {
	inBubble(t, func(w *world) {
		w.schedule(worker.SchedulerOptions{}, every("n", "0 12 3 * 2")) // the third, and Tuesdays; the bubble begins on a Saturday
		pass(7 * 24 * time.Hour)
		synctest.Wait()
		if got := strings.Join(w.ids(), " "); got != "n@2000-01-03T12:00Z n@2000-01-04T12:00Z" {
			t.Errorf("%v", got)
		}
	})
}
