package tune

import "math"

const (
	steps  = 256 // of a window, in a sum over pauses
	cells  = 512 // of a window at least, in the table of attempts
	phases = 16  // points in a renewal cycle at which a fault may begin
)

// losses says how a live session loses its leases.
type losses struct {
	perCycle  float64 // probability, for a renewal cycle without a pause and an outage
	perOutage float64 // probability, for an outage
	perPause  float64 // probability, for a pause
	excess    float64 // seconds, for an outage: from the end of the authority's patience to the end of the outage, or 0, in the mean
}

// rate is losses a second by failing renewals alone. A cycle without a loss takes an interval, one with a loss the window.
func (l losses) rate(r rules) float64 {
	return l.perCycle / (r.meanInterval() + l.perCycle*max(r.window-r.meanInterval(), 0))
}

// solver holds what all parts of the model look up.
type solver struct {
	r    rules
	in   Inputs
	n    float64             // cells of the table: one is shorter than the shortest back-off
	fail [backoffs][]float64 // fail[j][i]: probability that attempt j+1 and all later ones fail, if it is sent at i cells
}

// solve is the model. Time runs in seconds from the sending of the last acknowledged renewal.
func solve(in Inputs, r rules) losses {
	s := &solver{r: r, in: in, n: max(cells, math.Ceil(r.window))}
	s.fill()
	var l losses
	for i := range phases {
		first := r.interval((float64(i) + 0.5) / phases)
		l.perCycle += s.at(0, first) / phases
		l.perPause += s.paused(first) / phases
		lost, excess := s.outage(first)
		l.perOutage += lost / phases
		l.excess += excess / phases
	}
	return l
}

// fill computes the table from the end of the window backwards: an attempt leads only to later ones.
func (s *solver) fill() {
	for j := range s.fail {
		s.fail[j] = make([]float64, int(s.n)+1)
		s.fail[j][int(s.n)] = 1
	}
	for i := int(s.n) - 1; i >= 0; i-- {
		t := s.r.window * float64(i) / s.n
		a := s.attempt(t)
		for j := backoffs - 1; j >= 0; j-- {
			s.fail[j][i] = s.failing(a, j, t)
		}
	}
}

// attempt is what can become of a renewal.
type attempt struct {
	bound float64    // that it is waited for
	late  float64    // probability that it takes longer
	trips [6]float64 // how long the others take: quantiles in even steps
}

// attempt is the one that is sent at t.
func (s *solver) attempt(t float64) attempt {
	a := attempt{bound: s.r.bound(s.r.window - t)}
	a.late = s.in.Renewals.Over(a.bound)
	if s.in.Failures > 0 {
		n := float64(len(a.trips))
		for i := range a.trips {
			a.trips[i] = min(s.in.Renewals.Upper(a.late+(1-a.late)*(float64(i)+0.5)/n), a.bound)
		}
	}
	return a
}

// failing is the probability that the attempt sent at t, after j failures, and all that follow it fail. A failure at once comes after a trip
// of its own.
func (s *solver) failing(a attempt, j int, t float64) float64 {
	lost := a.late * s.after(j, t+a.bound)
	if s.in.Failures == 0 {
		return lost
	}
	for _, trip := range a.trips {
		lost += s.in.Failures * (1 - a.late) * s.after(j, t+trip) / float64(len(a.trips))
	}
	return lost
}

// after is the probability that nothing helps any more when failure number j+1 is noticed at t.
func (s *solver) after(j int, t float64) float64 {
	if t >= s.r.window || j+1 == s.r.attempts {
		return 1
	}
	const points = 4
	lost := 0.0
	for i := range points {
		lost += s.at(j+1, t+s.r.delay(j, s.r.window-t, (float64(i)+0.5)/points)) / points
	}
	return lost
}

// at reads the table, between two cells by a straight line. More failures than the table has rows wait as long as the last.
func (s *solver) at(j int, t float64) float64 {
	x := t / s.r.window * s.n
	if x >= s.n {
		return 1
	}
	row := s.fail[min(j, backoffs-1)]
	i := int(x)
	return row[i] + (row[i+1]-row[i])*(x-float64(i))
}

// paused is the probability that a pause loses the session whose next renewal is due at first: it outlasts the window,
// or leaves too little of it.
func (s *solver) paused(first float64) float64 {
	lost := 0.0
	for i := range phases {
		begin := first * (float64(i) + 0.5) / phases
		over := s.in.Pauses.Over(first - begin)
		for c := int(first / s.r.window * steps); c < steps && over > 0; c++ {
			end := s.r.window * float64(c+1) / steps
			next := s.in.Pauses.Over(end - begin)
			mid := (max(s.r.window*float64(c)/steps, first) + end) / 2
			lost += (over - next) * s.at(0, mid) / phases
			over = next
		}
		lost += over / phases
	}
	return lost
}

// outage is the same for an outage, and how long after the authority's expiry it ends, in the mean over all outages.
func (s *solver) outage(first float64) (lost, excess float64) {
	hangs, refusals := s.script(first, true), s.script(first, false)
	for i := range phases {
		begin := first * (float64(i) + 0.5) / phases
		l := s.in.Hang*s.outlasts(hangs, begin) + (1-s.in.Hang)*s.outlasts(refusals, begin)
		lost += l / phases
	}
	return lost, s.residual(s.r.ttl - first/2)
}

// script is when a session whose every renewal fails sends them, with back-offs of mean length: all at their bound where the store hangs,
// all at once where it refuses.
func (s *solver) script(first float64, hang bool) []float64 {
	var sent []float64
	for t := first; t < s.r.window; {
		sent = append(sent, t)
		if len(sent) == s.r.attempts {
			break
		}
		end := t + s.r.bound(s.r.window-t)
		if !hang {
			end = min(end, t+s.in.Renewals.Upper(0.5))
		}
		t = end + s.r.delay(len(sent)-1, s.r.window-end, 0.5)
	}
	return sent
}

// outlasts is the probability that an outage which begins at begin lets no renewal of the script through in time.
func (s *solver) outlasts(sent []float64, begin float64) float64 {
	lost, over := 0.0, 1.0
	for j, t := range sent {
		next := s.in.Outages.Over(t - begin)
		if over -= next; j > 0 { // the first attempt with no outage left is counted as an ordinary cycle
			lost += over * s.at(j, t)
		}
		over = next
	}
	return lost + over
}

// residual is the mean of what an outage lasts beyond x, 0 for those that end earlier: the integral of the probability of more.
func (s *solver) residual(x float64) float64 {
	const slices = 48
	if x <= 0 || x >= longest {
		return 0
	}
	ratio := math.Pow(longest/x, 1.0/slices)
	sum, over := 0.0, s.in.Outages.Over(x)
	for range slices {
		next := s.in.Outages.Over(x * ratio)
		sum += (over + next) / 2 * x * (ratio - 1)
		x, over = x*ratio, next
	}
	return sum
}
