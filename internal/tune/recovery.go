package tune

import (
	"math"
	"slices"
	"time"
)

// Part is how long one part of a recovery takes.
type Part struct{ Mean, P50, P99 time.Duration }

// Recovery is what passes between the crash of a holder and its successor's work going on. The parts' percentiles do not add up; Total has its own.
type Recovery struct {
	Remaining Part // of the TTL: the authority waits for the dead
	Waking    Part // of a waiter, once the lease is free
	Retries   Part // the trips of its questions, and those that fail and are asked again
	Start     Part // of the work
	Total     Part
}

// draws is how many points of four dimensions a recovery is computed from.
const draws = 2048

// recovery computes it from points that fill four dimensions evenly, the same for every TTL, so that curves are
// smooth and runs agree.
func recovery(in Inputs, r rules) Recovery {
	var parts [5][]float64
	for i := range draws {
		u := even(i)
		latency := in.Renewals.Upper(1 - u[1])
		remaining := r.ttl - r.interval(u[3])*u[0] + in.Renewals.Upper(0.5)/2
		waking := pollPast + pollHerd*u[2]
		if in.Poll > 0 {
			waking = in.Poll.Seconds() * u[2]
		}
		retries := 1.5*min(latency, r.askBound()) + repeats(in, r, math.Mod(u[1]+u[2]+u[3], 1))
		start := in.Start.Seconds()
		for p, x := range []float64{remaining, waking, retries, start, remaining + waking + retries + start} {
			parts[p] = append(parts[p], x)
		}
	}
	return Recovery{part(parts[0]), part(parts[1]), part(parts[2]), part(parts[3]), part(parts[4])}
}

// repeats is the time that failing questions take: each fails like a renewal, at once or at its bound, and is asked
// again after the waiter's back-off.
func repeats(in Inputs, r rules, u float64) float64 {
	late := (1 - in.Failures) * in.Renewals.Over(r.askBound())
	fails := in.Failures + late
	if fails <= 0 || u <= 0 || u >= fails {
		return 0
	}
	n := math.Floor(math.Log(u) / math.Log(fails))
	return n * ((in.Failures*in.Renewals.Upper(0.5)+late*r.askBound())/fails + pollMost*0.75)
}

// even is point i of a sequence that fills the unit cube of four dimensions evenly: multiples of the powers of the
// root of x^5 = x + 1, modulo 1.
func even(i int) [4]float64 {
	const root = 1.1673039782614187
	var u [4]float64
	step := 1.0
	for k := range u {
		step /= root
		u[k] = math.Mod(0.5+float64(i+1)*step, 1)
	}
	return u
}

func part(xs []float64) Part {
	sorted := slices.Clone(xs)
	slices.Sort(sorted)
	sum := 0.0
	for _, x := range sorted {
		sum += x
	}
	n := len(sorted)
	return Part{seconds(sum / float64(n)), seconds(sorted[n/2]), seconds(sorted[n*99/100])}
}
