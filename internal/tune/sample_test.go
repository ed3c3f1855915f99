package tune

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// slow is the store in memory at a distance: each renewal takes trip, and every failing'th fails; after lost of them the session is closed.
type slow struct {
	lease.Store
	trip          time.Duration
	failing, lost int
	renewed       int
	session       fence.ID
}

func (s *slow) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	s.session = req.ID
	return s.Store.Open(ctx, req)
}

func (s *slow) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	timer := time.NewTimer(s.trip)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return lease.Renewal{}, ctx.Err()
	}
	s.renewed++
	if s.lost > 0 && s.renewed > s.lost {
		if err := s.Close(ctx, req.Session); err != nil {
			return lease.Renewal{}, err
		}
	}
	if s.failing > 0 && s.renewed%s.failing == 0 {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return s.Store.Renew(ctx, req)
}

// sampled runs a sample inside a bubble, and checks that no session is left.
func sampled(t *testing.T, s *slow, o SampleOptions, stop time.Duration) (got Sampled, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if o.Clock == nil {
			o.Clock = func() time.Duration { return time.Since(begin) }
		}
		s.Store = memory.New(memory.Options{Clock: func() time.Duration { return time.Since(begin) }})
		ctx, cancel := context.WithTimeout(t.Context(), stop)
		defer cancel()
		got, err = Sample(ctx, s, o)
		if _, renewed := s.Store.Renew(t.Context(), lease.RenewRequest{Session: s.session}); !errors.Is(renewed, lease.ErrEnded) {
			t.Errorf("the session of the sample is not over: %v", renewed)
		}
	})
	return got, err
}

func TestSampleMeasuresRoundTrips(t *testing.T) {
	told := 0
	got, err := sampled(t, &slow{trip: 3 * time.Millisecond, failing: 10},
		SampleOptions{For: 20 * time.Second, Progress: func(time.Duration, int, int) { told++ }}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Acked + got.Failed; n < 150 || n > 250 || got.Failed != n/10 || got.Interrupted || told < 15 {
		t.Errorf("%+v, told %d times", got, told)
	}
	h, err := NewHistogram("renewals", got.Renewals.Buckets, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p50 := h.Upper(0.5); p50 < 0.0027 || p50 > 0.0033 {
		t.Errorf("p50 %v of round trips that take 3 ms", short(p50))
	}
	in := Defaults()
	if remarks, err := in.UseSample(got, 0); err != nil || in.Failures < 0.09 || len(remarks) < 2 || in.Pauses != Defaults().Pauses {
		t.Errorf("taking it: %v, failures %v, remarks %q", err, in.Failures, remarks)
	}
}

// A sample that is interrupted says what it has, and says so.
func TestSampleInterrupted(t *testing.T) {
	got, err := sampled(t, &slow{trip: time.Millisecond}, SampleOptions{For: time.Minute}, 5*time.Second)
	if err != nil || !got.Interrupted || got.Acked < sampleLeast || got.Elapsed > 6*time.Second {
		t.Errorf("%v, %+v", err, got)
	}
	_, err = sampled(t, &slow{trip: time.Millisecond}, SampleOptions{For: time.Minute}, time.Second)
	if !errors.Is(err, ErrTooFew) {
		t.Errorf("after a second: %v", err)
	}
}

func TestSampleOfAStoreThatDoesNotAnswer(t *testing.T) {
	_, err := sampled(t, &slow{trip: time.Millisecond, failing: 1}, SampleOptions{For: 10 * time.Second}, time.Hour)
	if !errors.Is(err, ErrTooFew) || !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("refusing: %v", err)
	}
	if _, err = sampled(t, &slow{trip: time.Hour}, SampleOptions{For: time.Minute}, 2*time.Hour); !errors.Is(err, ErrTooFew) {
		t.Errorf("hanging: %v", err)
	}
	if _, err = sampled(t, &slow{trip: time.Millisecond, lost: 30}, SampleOptions{For: time.Minute}, time.Hour); !errors.Is(err, lease.ErrEnded) {
		t.Errorf("closed by somebody: %v", err)
	}
}

// A clock that jumps is a process that stood still: 50 of 300 ms in 60 s.
func TestSampleNoticesPauses(t *testing.T) {
	origin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where a bubble's time begins
	clock := func() time.Duration {
		now := time.Since(origin)
		return now + seconds(0.3*min(math.Floor(now.Seconds()), 50))
	}
	got, err := sampled(t, &slow{trip: time.Microsecond}, SampleOptions{For: time.Minute, Clock: clock}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := Defaults()
	if _, err := in.UseSample(got, 0); err != nil {
		t.Fatal(err)
	}
	if p50 := in.Pauses.Upper(0.5); p50 < 0.26 || p50 > 0.34 || in.PauseEvery < time.Second || in.PauseEvery > 2*time.Second {
		t.Errorf("pauses p50 %v, one every %v; want 300 ms, one every 1.5 s", short(p50), in.PauseEvery)
	}
}

func TestSampleOptionsOutOfRange(t *testing.T) {
	for _, o := range []SampleOptions{{}, {For: time.Millisecond}, {For: 2 * time.Hour}, {For: time.Second, Every: time.Second}, {For: time.Minute, Every: time.Millisecond}, {For: -time.Second}} {
		if _, err := Sample(t.Context(), nil, o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
