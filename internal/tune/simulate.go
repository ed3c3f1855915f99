package tune

import (
	"math"
	"math/rand/v2"
	"slices"
)

// outcome is what a simulated session lived through.
type outcome struct {
	live            float64 // seconds in which it believed
	cycles          int     // acknowledged renewals
	losses          int
	outages, pauses int
}

// rate is losses a second of life.
func (o outcome) rate() float64 { return float64(o.losses) / o.live }

// fault is an alternation of quiet times and faults, on the virtual clock.
type fault struct {
	rng    *rand.Rand
	rate   float64 // a second
	length Dist
	begin  float64
	end    float64
	count  int
}

func newFault(rng *rand.Rand, rate float64, length Dist) *fault {
	f := &fault{rng: rng, rate: rate, length: length, begin: math.Inf(1), end: math.Inf(1)}
	if rate > 0 {
		f.next(0)
	}
	return f
}

func (f *fault) next(after float64) {
	f.begin = after + f.rng.ExpFloat64()/f.rate
	f.end = f.begin + f.length.Upper(1-f.rng.Float64())
	f.count++
}

// look moves on to the fault that is current at t or comes next, and reports whether it is current. t never falls.
func (f *fault) look(t float64) bool {
	for f.end <= t {
		f.next(f.end)
	}
	return f.begin <= t
}

// player plays the rules of a session on a virtual clock, one event after another.
type player struct {
	in      Inputs
	r       rules
	rng     *rand.Rand
	outages *fault
	hangs   bool // in the outage that count was drawn for
	drawn   int
	pauses  *fault
	out     outcome
	// trace, where set, is told of each attempt.
	trace func(sent float64)
}

// play runs until it has seen that many losses or renewal attempts.
func play(in Inputs, r rules, seed uint64, losses, attempts int) outcome {
	rng := rand.New(rand.NewPCG(seed, 0x7475_6e65))
	p := &player{in: in, r: r, rng: rng,
		outages: newFault(rng, rate(in.OutageEvery), in.Outages),
		pauses:  newFault(rng, rate(in.PauseEvery), in.Pauses)}
	now := 0.0
	for p.out.losses < losses && attempts > 0 {
		var n int
		now, n = p.life(now, attempts)
		attempts -= n
	}
	p.out.outages, p.out.pauses = p.outages.count, p.pauses.count
	return p.out
}

// awake is when a process that means to act at t does: not in a pause.
func (p *player) awake(t float64) float64 {
	if p.pauses.look(t) {
		return p.pauses.end
	}
	return t
}

// life plays one session from its start to its loss, or until the attempts are used up, and returns when the next one starts.
func (p *player) life(start float64, attempts int) (end float64, used int) {
	believed, deadline := start, start+p.r.window
	due, failures := start+p.r.interval(p.rng.Float64()), 0
	for ; used < attempts; used++ {
		t := p.awake(due)
		if t >= deadline {
			break
		}
		if p.trace != nil {
			p.trace(t)
		}
		ok, told := p.renew(t, p.r.bound(deadline-t))
		told = p.awake(told)
		switch {
		case told >= deadline:
			due = told // what is over stays over, whatever the answer says
		case ok:
			p.out.cycles++
			p.out.live += t - believed
			believed, deadline, failures = t, t+p.r.window, 0
			due = max(told, t+p.r.interval(p.rng.Float64()))
		default:
			due = told + p.r.delay(failures, deadline-told, p.rng.Float64())
			failures++
		}
	}
	if used == attempts {
		return deadline, used
	}
	p.out.losses++
	p.out.live += deadline - believed
	end = p.awake(max(due, deadline))
	for p.outages.look(end) { // nobody opens a session that cannot be asked for
		end = p.awake(p.outages.end)
	}
	return end, used
}

// renew sends one renewal at t and reports whether an answer came within bound, and when that was known.
func (p *player) renew(t, bound float64) (ok bool, told float64) {
	out := p.outages.look(t)
	if p.drawn != p.outages.count {
		p.drawn, p.hangs = p.outages.count, p.rng.Float64() < p.in.Hang
	}
	trip := p.in.Renewals.Upper(1 - p.rng.Float64())
	switch {
	case out && p.hangs, trip > bound:
		return false, t + bound
	case out, p.rng.Float64() < p.in.Failures:
		return false, t + trip
	case p.outages.begin < t+trip: // the answer is lost with the store
		return false, t + bound
	}
	return true, t + trip
}

// waits plays recoveries: a holder that crashes at any moment of its cycle, and a waiter that has polled for long. It returns their
// lengths, sorted.
func waits(in Inputs, r rules, seed uint64, rounds int) []float64 {
	rng := rand.New(rand.NewPCG(seed, 0x7761_6974))
	every := pollMost
	if in.Poll > 0 {
		every = in.Poll.Seconds()
	}
	trip := func() float64 { return in.Renewals.Upper(1 - rng.Float64()) }
	var out []float64
	for range rounds {
		crash := r.interval(rng.Float64()) * rng.Float64() // after the last renewal was sent
		expiry := trip()/2 + r.ttl
		now := crash - rng.Float64()*every // some question of the waiter's before the crash
		for {
			asked, back := trip()/2, trip()/2
			failed := rng.Float64() < in.Failures
			if asked+back > r.askBound() {
				now += r.askBound() + leastDelay*10
				continue
			}
			if !failed && now+asked >= expiry {
				now += asked + back
				break
			}
			wait := pollMost * (0.5 + 0.5*rng.Float64())
			if !failed {
				wait = min(wait, expiry-now-asked+pollPast+pollHerd*rng.Float64())
			}
			if in.Poll > 0 {
				wait = every
			}
			now += asked + back + wait
		}
		out = append(out, now-crash+in.Start.Seconds())
	}
	slices.Sort(out)
	return out
}
