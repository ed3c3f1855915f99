package tune

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Point is what one TTL comes to.
type Point struct {
	TTL, Margin               time.Duration
	IntervalMin, IntervalMost time.Duration // between two renewals
	Attempt                   time.Duration // that one renewal is waited for

	// How often a live session loses its leases, a day, by cause; and the probability that it does within an hour and a day.
	ByFailures, ByOutages, ByPauses float64
	LossPerHour, LossPerDay         float64

	ReclaimsPerDay    float64 // of all sessions: live holders whose leases go to others
	RenewalsPerSecond float64 // of all sessions
	Recovery          Recovery
	BlockedPerDay     time.Duration // of one session's resources: after crashes and after losses
	CostPerDay        float64       // of all sessions

	Budget, Reserve time.Duration // for a waiter: budget.Start(ctx, Budget, budget.Reserve(Reserve))

	Unfit string // why this TTL cannot be used or misses a bound; empty if it can
}

// Plan is a recommendation and what it was chosen from.
type Plan struct {
	Inputs Inputs
	Points []Point         // by TTL; those that cannot be used at all are left out
	Best   int             // in Points: the cheapest within the bounds; where none is, the one with the least loss
	Met    bool            // whether Best is within the bounds
	Also   []time.Duration // TTLs that were asked for
}

// Evaluate computes one TTL. It returns an [*InputError] for inputs out of range and for a TTL that cannot be used with them.
func Evaluate(in Inputs, ttl time.Duration) (Point, error) {
	if err := in.Check(); err != nil {
		return Point{}, err
	}
	margin := in.marginFor(ttl)
	if why := in.fits(ttl, margin); why != "" {
		return Point{}, wrongf("ttl", "%v with a margin of %v: %s", ttl, margin, why)
	}
	return in.point(ttl, margin), nil
}

func (in Inputs) point(ttl, margin time.Duration) Point {
	r := rulesFor(ttl.Seconds(), margin.Seconds())
	l := solve(in, r)
	n := float64(in.Sessions)
	p := Point{
		TTL: ttl, Margin: margin, Attempt: ttl / 3,
		IntervalMin: seconds(r.interval(0)), IntervalMost: seconds(r.interval(1)),
		ByFailures:        l.rate(r) * day,
		ByOutages:         l.perOutage * rate(in.OutageEvery) * day,
		ByPauses:          l.perPause * rate(in.PauseEvery) * day,
		RenewalsPerSecond: n / r.meanInterval(),
		Recovery:          recovery(in, r),
	}
	lost := p.ByFailures + p.ByOutages + p.ByPauses
	p.LossPerHour, p.LossPerDay = -math.Expm1(-lost/24), -math.Expm1(-lost)
	p.ReclaimsPerDay = lost * n
	again := p.Recovery.Waking.Mean + p.Recovery.Retries.Mean + p.Recovery.Start.Mean
	blocked := rate(in.CrashEvery)*day*p.Recovery.Total.Mean.Seconds() +
		lost*(margin+again).Seconds() + rate(in.OutageEvery)*day*l.excess
	blocked = min(blocked, day) // where recoveries meet, nothing is blocked twice
	p.BlockedPerDay = seconds(blocked)
	p.CostPerDay = n * (blocked*in.CostPerSecond + lost*in.CostPerReclaim)
	p.Reserve = nice(2*in.Renewals.Upper(0.001) + 0.1)
	p.Budget = nice(p.Recovery.Total.P99.Seconds()*1.1 + p.Reserve.Seconds())
	p.Unfit = in.misses(p)
	return p
}

// misses says which bound a point misses.
func (in Inputs) misses(p Point) string {
	switch {
	case p.LossPerDay > in.Target:
		return fmt.Sprintf("loses a live session with probability %.2g a day, over the target of %.2g", p.LossPerDay, in.Target)
	case in.MaxRenewals > 0 && p.RenewalsPerSecond > in.MaxRenewals:
		return fmt.Sprintf("%.3g renewals a second, over the bound of %.3g", p.RenewalsPerSecond, in.MaxRenewals)
	}
	return ""
}

// Recommend evaluates TTLs from half a second to an hour that people would write, and also, and returns the cheapest one that
// keeps to the target and the bound on renewals. Where none does, Met is false and Best is the one that loses least often within the
// bound on renewals, or least often at all. It returns an [*InputError] for inputs out of range, or with which no TTL can be used.
func Recommend(in Inputs, also ...time.Duration) (Plan, error) {
	if err := in.Check(); err != nil {
		return Plan{}, err
	}
	for _, ttl := range also {
		if why := in.fits(ttl, in.marginFor(ttl)); why != "" {
			return Plan{}, wrongf("ttl", "%v with a margin of %v: %s", ttl, in.marginFor(ttl), why)
		}
	}
	candidates := append(ttls(), also...)
	slices.Sort(candidates)
	plan := Plan{Inputs: in, Also: also}
	why := ""
	for _, ttl := range slices.Compact(candidates) {
		margin := in.marginFor(ttl)
		if w := in.fits(ttl, margin); w != "" {
			why = fmt.Sprintf("%v with a margin of %v: %s", ttl, margin, w)
			continue
		}
		plan.Points = append(plan.Points, in.point(ttl, margin))
	}
	if len(plan.Points) == 0 {
		return Plan{}, wrongf("ttl", "none from 500ms to 1h can be used; the last was %s", why)
	}
	for i, p := range plan.Points {
		if better(in, p, plan.Points[plan.Best]) {
			plan.Best = i
		}
	}
	plan.Met = plan.Points[plan.Best].Unfit == ""
	return plan, nil
}

// better reports whether p is to be preferred to q.
func better(in Inputs, p, q Point) bool {
	overloads := func(p Point) bool { return in.MaxRenewals > 0 && p.RenewalsPerSecond > in.MaxRenewals }
	switch {
	case (p.Unfit == "") != (q.Unfit == ""):
		return p.Unfit == ""
	case p.Unfit == "":
		return p.CostPerDay < q.CostPerDay
	case overloads(p) != overloads(q):
		return !overloads(p)
	}
	return p.LossPerDay < q.LossPerDay
}

// ttls are the candidates: six to ten a decade, from 500 ms to 1 h.
func ttls() []time.Duration {
	var out []time.Duration
	for _, s := range []float64{0.5, 0.6, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 45, 60, 75, 90,
		120, 150, 180, 240, 300, 420, 600, 900, 1200, 1800, 2700, 3600} {
		out = append(out, seconds(s))
	}
	return out
}

// nice rounds seconds up to two figures.
func nice(s float64) time.Duration {
	unit := math.Pow(10, math.Floor(math.Log10(max(s, 0.001)))-1)
	return seconds(math.Ceil(s/unit-1e-9) * unit)
}
