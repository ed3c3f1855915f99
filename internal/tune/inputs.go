package tune

import (
	"math"
	"time"

	"github.com/tenure-go/tenure/lease"
)

const day = 24 * 60 * 60.0 // seconds

// Inputs are what the model is told. [Defaults] is where to start; every field that is 0 there means what is said here.
type Inputs struct {
	Renewals Dist    // from sending a renewal to its answer, while the store can be reached
	Failures float64 // share of renewals, 0 to 0.9, that fail at once and on their own account

	Pauses     Dist          // how long the holder's process stands still: garbage collection, throttling, a frozen machine
	PauseEvery time.Duration // mean time between two pauses of a process; 0: there are none

	Outages     Dist          // how long the store cannot be reached by anybody
	OutageEvery time.Duration // mean time between two outages; 0: there are none
	Hang        float64       // share of outages, 0 to 1, in which requests get no answer; in the others they are refused at once

	Sessions   int           // that renew: one a process, as a rule
	CrashEvery time.Duration // mean time between two crashes of a holder; 0: none
	Start      time.Duration // from the grant to the work going on
	Poll       time.Duration // between two questions of a waiter; 0: it waits in lease.Session, which asks right after the expiry

	CostPerSecond  float64 // of a second in which a resource is blocked, in any money
	CostPerReclaim float64 // of a live holder that lost its lease: work done again, somebody woken
	Target         float64 // highest probability that a live session loses its leases within a day, over 0 and under 1
	MaxRenewals    float64 // highest renewals a second of all sessions; 0: no bound

	Margin         time.Duration // to use with every TTL; 0: chosen for each
	MinTTL, MaxTTL time.Duration // 0: those of package lease
	Grain          time.Duration // a TTL is a multiple of it; 0: any
}

// Defaults are round numbers for one worker beside one database of the same site. They are assumptions, and the report says
// which of them it rests on.
func Defaults() Inputs {
	renewals := lognormal{0.002, math.Log(25) / z99} // p99 50 ms
	return Inputs{
		Renewals: renewals, Failures: 0.001,
		Pauses: lognormal{0.020, math.Log(25) / z99}, PauseEvery: 10 * time.Minute, // p99 500 ms
		Outages: lognormal{5, math.Log(12) / z99}, OutageEvery: 30 * 24 * time.Hour, Hang: 0.5, // p99 60 s
		Sessions: 1, CrashEvery: 10 * 24 * time.Hour, Start: 2 * time.Second,
		CostPerSecond: 1, CostPerReclaim: 60, Target: 0.01,
		MinTTL: lease.MinTTL, MaxTTL: lease.MaxTTL,
	}
}

// Check returns an [*InputError] for the first input that is out of range.
func (in Inputs) Check() error {
	durations := []struct {
		what     string
		d        time.Duration
		min, max time.Duration
	}{
		{"pause every", in.PauseEvery, 0, 10 * 365 * 24 * time.Hour},
		{"outage every", in.OutageEvery, 0, 100 * 365 * 24 * time.Hour},
		{"crash every", in.CrashEvery, 0, 100 * 365 * 24 * time.Hour},
		{"start", in.Start, 0, 24 * time.Hour},
		{"poll", in.Poll, 0, 24 * time.Hour},
		{"margin", in.Margin, 0, 24 * time.Hour},
	}
	for _, c := range durations {
		if c.d < c.min || c.d > c.max {
			return wrongf(c.what, "%v; want %v to %v", c.d, c.min, c.max)
		}
	}
	numbers := []struct {
		what     string
		x        float64
		min, max float64
	}{
		{"failures", in.Failures, 0, 0.9},
		{"hang", in.Hang, 0, 1},
		{"sessions", float64(in.Sessions), 1, 10_000_000},
		{"cost per second", in.CostPerSecond, 0, 1e12},
		{"cost per reclaim", in.CostPerReclaim, 0, 1e12},
		{"target", in.Target, 1e-12, 0.999},
		{"max renewals", in.MaxRenewals, 0, 1e9},
	}
	for _, c := range numbers {
		if math.IsNaN(c.x) || c.x < c.min || c.x > c.max {
			return wrongf(c.what, "%v; want %v to %v", c.x, c.min, c.max)
		}
	}
	if in.PauseEvery > 0 && in.PauseEvery < time.Millisecond || in.OutageEvery > 0 && in.OutageEvery < time.Second {
		return wrongf("faults", "a pause every %v, an outage every %v: nothing would run between them", in.PauseEvery, in.OutageEvery)
	}
	if in.Renewals == nil || in.Pauses == nil || in.Outages == nil {
		return wrongf("distributions", "renewals, pauses and outages must be given")
	}
	return nil
}

// rate is how often a second something happens that happens once in every; 0 is never.
func rate(every time.Duration) float64 {
	if every <= 0 {
		return 0
	}
	return 1 / every.Seconds()
}
