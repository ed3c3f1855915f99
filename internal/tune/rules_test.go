package tune

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// away is an authority that opens and then answers no renewal: it hangs, or refuses at once.
type away struct {
	lease.Store // for what is not called
	hang        bool
	answers     bool
	begin       time.Time
	sent        []float64
}

func (a *away) Guarantees() lease.Guarantees {
	return lease.Guarantees{MaxNames: 1, MinTTL: time.Millisecond, MaxTTL: lease.MaxTTL}
}

func (a *away) Open(_ context.Context, req lease.OpenRequest) (time.Duration, error) {
	return req.TTL, nil
}

func (a *away) Close(context.Context, fence.ID) error { return nil }

func (a *away) Renew(ctx context.Context, _ lease.RenewRequest) (lease.Renewal, error) {
	a.sent = append(a.sent, time.Since(a.begin).Seconds())
	if a.answers {
		return lease.Renewal{Remaining: 10 * time.Second}, nil
	}
	if a.hang {
		<-ctx.Done()
		return lease.Renewal{}, ctx.Err()
	}
	return lease.Renewal{}, lease.ErrUnavailable
}

// lived is when a session of package lease sends its renewals, and when it ends.
func lived(t *testing.T, a *away, ttl, margin time.Duration, most time.Duration) (sent []float64, end float64) {
	t.Helper()
	a.begin = time.Now()
	s, err := lease.Start(t.Context(), a, lease.Options{TTL: ttl, Margin: margin, Clock: func() time.Duration { return time.Since(a.begin) }})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.Context().Done():
	case <-timer.C:
	}
	end = time.Since(a.begin).Seconds()
	_ = s.Close(t.Context())
	return a.sent, end
}

// played is the same by the simulation.
func played(seed uint64, r rules, hang bool) []float64 {
	in := Defaults()
	never(&in)
	in.Renewals, in.Hang = log(1e-6, 2e-6), 0
	if hang {
		in.Hang = 1
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	var sent []float64
	p := &player{in: in, r: r, rng: rng, pauses: newFault(rng, 0, nil), drawn: -1,
		outages: &fault{rng: rng, rate: 1, length: in.Outages, begin: 0, end: r.ttl},
		trace:   func(t float64) { sent = append(sent, t) }}
	p.life(0, 10_000)
	return sent
}

// silence is an outage that a session of package lease and the rules are put through.
type silence struct {
	ttl, margin time.Duration
	hang        bool
}

func silences() []silence {
	return []silence{
		{10 * time.Second, time.Second, true},
		{10 * time.Second, time.Second, false},
		{10 * time.Second, 5 * time.Second, false},
		{2 * time.Minute, 12 * time.Second, false},
	}
}

// agree returns an error unless the rules say what sessions of package lease do: as many renewals, at the same times in the mean, and the same end.
func (c silence) agree(t *testing.T, r rules) error {
	t.Helper()
	const runs = 300
	var count, first, next, last [2]float64
	note := func(who int, sent []float64) {
		count[who] += float64(len(sent)) / runs
		first[who] += sent[0] / runs
		next[who] += sent[min(1, len(sent)-1)] / runs
		last[who] += sent[len(sent)-1] / runs
	}
	end := 0.0
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			var sent []float64
			sent, end = lived(t, &away{hang: c.hang}, c.ttl, c.margin, c.ttl)
			note(0, sent)
		})
		note(1, played(uint64(i), r, c.hang))
	}
	if math.Abs(end-r.window) > 0.001 {
		return fmt.Errorf("%+v: the session believed for %.3f s, the rules say %.3f s", c, end, r.window)
	}
	if d := count[0] / count[1]; d < 0.97 || d > 1.03 {
		return fmt.Errorf("%+v: %.2f renewals by a session, %.2f by the rules", c, count[0], count[1])
	}
	for name, pair := range map[string][2]float64{"first": first, "second": next, "last": last} {
		if math.Abs(pair[0]-pair[1]) > c.ttl.Seconds()*0.006 {
			return fmt.Errorf("%+v: the %s renewal was sent after %.3f s by a session, after %.3f s by the rules", c, name, pair[0], pair[1])
		}
	}
	return nil
}

// TestTheRulesAreThoseOfARealSession plays outages against sessions of package lease inside a bubble and against the
// simulation. Were the client's rules changed, this would say so.
func TestTheRulesAreThoseOfARealSession(t *testing.T) {
	for _, c := range silences() {
		if err := c.agree(t, rulesFor(c.ttl.Seconds(), c.margin.Seconds())); err != nil {
			t.Error(err)
		}
	}
}

// TestTheRulesAreThoseOfARealSessionCatchesOthers: rules that forget the margin, and those of a TTL that is a twentieth longer
// with the same window, are noticed in every outage.
func TestTheRulesAreThoseOfARealSessionCatchesOthers(t *testing.T) {
	for _, c := range silences() {
		forgets := rulesFor(c.ttl.Seconds(), 0)
		longer := rulesFor(c.ttl.Seconds()*1.05, c.margin.Seconds()+c.ttl.Seconds()*0.05)
		for name, r := range map[string]rules{"forget the margin": forgets, "are of a longer TTL": longer} {
			if err := c.agree(t, r); err == nil {
				t.Errorf("%+v: rules that %s pass", c, name)
			}
		}
	}
}

// TestTheIntervalIsThatOfARealSession: the time between two acknowledged renewals.
func TestTheIntervalIsThatOfARealSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rulesFor(10, 1)
		sent, _ := lived(t, &away{answers: true}, 10*time.Second, time.Second, time.Hour)
		sum := 0.0
		for i := range len(sent) - 1 {
			d := sent[i+1] - sent[i]
			if d < r.interval(0)-1e-6 || d > r.interval(1)+1e-6 {
				t.Fatalf("%.3f s between two renewals, the rules say %.3f to %.3f", d, r.interval(0), r.interval(1))
			}
			sum += d / float64(len(sent)-1)
		}
		if math.Abs(sum-r.meanInterval()) > 0.02 {
			t.Errorf("%.3f s between two renewals in the mean, the rules say %.3f", sum, r.meanInterval())
		}
	})
}
