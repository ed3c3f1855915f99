package tune

import (
	"fmt"
	"time"
)

// pausesLeast is how many pauses a sample must hold before it replaces the assumption: a tail is not read off a handful.
const pausesLeast = 30

// UseRenewals takes the measured round trips; tail is the index of the Pareto tail, 0 for [DefaultTail].
func (in *Inputs) UseRenewals(what string, m Measured, tail float64) error {
	h, err := NewHistogram(what, m.Buckets, tail)
	if err != nil {
		return err
	}
	in.Renewals = h
	return nil
}

// UsePauses takes the measured pauses. over is the time in which they happened, 0 for what the file says.
func (in *Inputs) UsePauses(what string, m Measured, over time.Duration, tail float64) error {
	h, err := NewHistogram(what, m.Buckets, tail)
	if err != nil {
		return err
	}
	if over == 0 {
		over = m.Over
	}
	if over <= 0 {
		return wrongf(what, "in what time were these %.0f pauses? Say so", h.Count())
	}
	every := seconds(over.Seconds() / h.Count())
	if every < time.Millisecond {
		return wrongf(what, "%.0f pauses in %v are one every %v; want at least 1ms between two", h.Count(), over, every)
	}
	in.Pauses, in.PauseEvery = h, every
	return nil
}

// UseSample takes what was sampled and returns remarks about what it could not take.
func (in *Inputs) UseSample(s Sampled, tail float64) ([]string, error) {
	if err := in.UseRenewals("the sampled renewals", s.Renewals, tail); err != nil {
		return nil, err
	}
	remarks := []string{"a sample sees neither outages nor rare pauses: those are assumed, or given"}
	if s.Failed > 0 {
		in.Failures = min(max(in.Failures, float64(s.Failed)/float64(s.Failed+s.Acked)), 0.9)
		remarks = append(remarks, fmt.Sprintf("%d of %d renewals failed; the last: %v", s.Failed, s.Failed+s.Acked, s.LastFailure))
	}
	n := 0.0
	if b := s.Pauses.Buckets; len(b) > 0 {
		n = b[len(b)-1].Count
	}
	if n < pausesLeast {
		return append(remarks, fmt.Sprintf("%.0f pauses of this process over %v were seen, too few to tell how long the longest are: the assumption stays", n, pauseLeast)), nil
	}
	return remarks, in.UsePauses("the sampled pauses", s.Pauses, s.Elapsed, tail)
}
