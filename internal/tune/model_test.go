package tune

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// setting is one point of the grid on which the model is compared with the simulation. Faults are frequent, or a simulation would never see a loss.
type setting struct {
	name        string
	ttl, margin float64
	change      func(in *Inputs)
}

func never(in *Inputs) {
	in.PauseEvery, in.OutageEvery, in.Failures = 0, 0, 0
}

func log(median, p99 float64) Dist { return lognormal{median, math.Log(p99/median) / z99} }

// grid goes through each cause of a loss alone, with long and short margins, and all together.
func grid() []setting {
	outages := func(every float64, d Dist, hang float64) func(in *Inputs) {
		return func(in *Inputs) {
			never(in)
			in.OutageEvery, in.Outages, in.Hang = seconds(every), d, hang
		}
	}
	slow := func(in *Inputs) { // renewals as slow as a third of the TTL, some slower
		never(in)
		in.Renewals, in.Failures = log(0.2, 6), 0.05
	}
	fails := func(in *Inputs) {
		never(in)
		in.Failures, in.Renewals = 0.6, log(0.5, 3)
	}
	pauses := func(in *Inputs) {
		never(in)
		in.PauseEvery, in.Pauses = seconds(200), log(2, 40)
	}
	return []setting{
		{"refusing outages", 10, 1, outages(600, log(4, 40), 0)},
		{"refusing outages, margin of a third", 9, 3, outages(600, log(4, 40), 0)},
		{"hanging outages", 10, 1, outages(600, log(4, 40), 1)},
		{"hanging outages, margin of a half", 10, 5, outages(600, log(3, 30), 1)},
		{"both, short TTL", 2, 0.5, outages(120, log(0.6, 6), 0.5)},
		{"both, long TTL", 120, 12, outages(6000, log(30, 400), 0.5)},
		{"slow renewals", 6, 0.6, slow},
		{"slow renewals, margin of a half", 8, 4, slow},
		{"failing renewals", 6, 2, fails},
		{"failing renewals, margin of a half", 5, 2.5, fails}, // a loss every other cycle
		{"pauses", 10, 1, pauses},
		{"pauses, margin of a half", 10, 5, pauses},
		{"everything", 10, 2.5, func(in *Inputs) {
			in.Renewals, in.Failures = log(0.1, 3), 0.05
			in.OutageEvery, in.Outages, in.Hang = seconds(900), log(4, 40), 0.5
			in.PauseEvery, in.Pauses = seconds(300), log(1, 20)
		}},
	}
}

const (
	// modelFactor is how far the model's rate of losses may be from the simulated one, either way.
	modelFactor = 1.25
	// seen is how many losses a simulation waits for: its own error is then about 1/sqrt(seen), 3 %.
	seen = 1200
	// most bounds a simulation.
	most = 1_500_000
)

// compare returns an error if rates of losses by broken rules differ from a simulation of the right ones.
func compare(s setting, broken func(rules) rules) error {
	in := Defaults()
	s.change(&in)
	r := rulesFor(s.ttl, s.margin)
	o := play(in, r, 1, seen, most)
	if o.losses < seen/4 {
		return fmt.Errorf("%s: the simulation saw %d losses in %d renewals: too few to compare", s.name, o.losses, o.cycles)
	}
	model := rateOf(in, broken(r))
	if f := model / o.rate(); f > modelFactor || f < 1/modelFactor {
		return fmt.Errorf("%s: the model says %.4g losses a second, the simulation %.4g (%d losses): a factor of %.2f", s.name, model, o.rate(), o.losses, f)
	}
	return nil
}

func rateOf(in Inputs, r rules) float64 {
	l := solve(in, r)
	return l.rate(r) + l.perOutage*rate(in.OutageEvery) + l.perPause*rate(in.PauseEvery)
}

// TestModelAgreesWithTheSimulation holds the model to the simulated client over the grid.
func TestModelAgreesWithTheSimulation(t *testing.T) {
	for _, s := range grid() {
		if err := compare(s, func(r rules) rules { return r }); err != nil {
			t.Error(err)
		}
	}
}

// TestModelAgreesWithTheSimulationCatchesBrokenModels: the comparison above is worth something, because it fails for a model that forgets
// the margin, one that counts a single attempt, and one that takes an answer that comes after the window for an answer.
func TestModelAgreesWithTheSimulationCatchesBrokenModels(t *testing.T) {
	twins := map[string]func(rules) rules{
		"forgets the margin":     func(r rules) rules { r.window = r.ttl; return r },
		"counts one attempt":     func(r rules) rules { r.attempts = 1; return r },
		"subtracts margin twice": func(r rules) rules { r.window = r.ttl - 2*r.margin; return r },
	}
	for name, broken := range twins {
		caught := 0
		for _, s := range grid() {
			if r := broken(rulesFor(s.ttl, s.margin)); r.window <= r.ttl/3 {
				continue
			}
			if err := compare(s, broken); err != nil {
				caught++
			}
		}
		t.Logf("%s: caught by %d of %d settings", name, caught, len(grid()))
		if caught < 3 {
			t.Errorf("a model that %s differs from the simulation in %d settings only", name, caught)
		}
	}
}

// TestRecoveryAgreesWithTheSimulation compares the percentiles of a recovery with those of simulated waiters.
func TestRecoveryAgreesWithTheSimulation(t *testing.T) {
	for _, c := range []struct {
		ttl, margin float64
		poll        time.Duration
		failures    float64
	}{{10, 1, 0, 0.001}, {2, 0.5, 0, 0.001}, {60, 6, 20 * time.Second, 0.001}, {5, 0.5, 0, 0.2}} {
		in := Defaults()
		in.Poll, in.Failures = c.poll, c.failures
		r := rulesFor(c.ttl, c.margin)
		got, want := recovery(in, r), waits(in, r, 1, 20_000)
		for name, pair := range map[string][2]float64{
			"p50":  {got.Total.P50.Seconds(), want[len(want)/2]},
			"p99":  {got.Total.P99.Seconds(), want[len(want)*99/100]},
			"mean": {got.Total.Mean.Seconds(), mean(want)},
		} {
			if f := pair[0] / pair[1]; f < 0.97 || f > 1.03 {
				t.Errorf("%+v: %s of a recovery is %.3f s by the model, %.3f s simulated", c, name, pair[0], pair[1])
			}
		}
	}
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
