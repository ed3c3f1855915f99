package tune

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Check is one comparison of the model with a simulation.
type Check struct {
	Cause     string  `json:"cause"`
	Faults    int     `json:"faults"`    // outages or pauses that were played; renewals, for failing renewals
	Losses    int     `json:"losses"`    // that the simulation saw
	Simulated float64 `json:"simulated"` // losses for each fault
	Model     float64 `json:"model"`     // the same, by the model
	Ratio     float64 `json:"ratio"`     // of the model's to the simulated; 0 where too few losses were seen to compare
	Agrees    bool    `json:"agrees"`    // within the stated factor, or too rare for both
	Remark    string  `json:"remark,omitempty"`
}

// checkFactor is how far the model may be from a simulation that saw enough losses.
const checkFactor = 1.5

// The bounds of a check: losses to wait for, and renewals to play at most.
const (
	checkLosses   = 1000
	checkAttempts = 3_000_000
	playedShare   = 4 // faults shorter than this part of the window are left out, on both sides of the comparison
)

// Simulate checks the model at one TTL with these inputs, cause by cause, in a few seconds at most. The real rates are too low to
// be played: outages and pauses come once in 60 TTLs, and only those longer than a quarter of the window, for the model as for the
// simulation. The same seed plays the same.
func Simulate(in Inputs, ttl time.Duration, seed uint64) ([]Check, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	margin := in.marginFor(ttl)
	if why := in.fits(ttl, margin); why != "" {
		return nil, wrongf("ttl", "%v with a margin of %v: %s", ttl, margin, why)
	}
	r := rulesFor(ttl.Seconds(), margin.Seconds())
	quiet := in
	quiet.OutageEvery, quiet.PauseEvery = 0, 0
	checks := []Check{checkFailures(quiet, r, seed), checkRecovery(in, r, seed)}
	if in.OutageEvery > 0 {
		only := quiet
		only.OutageEvery, only.Outages = 60*ttl, above(in.Outages, r.window/playedShare)
		checks = append(checks, checkFaults("outages", only, r, seed, func(l losses) float64 { return l.perOutage },
			func(o outcome) int { return o.outages }, only.Outages))
	}
	if in.PauseEvery > 0 {
		only := quiet
		only.PauseEvery, only.Pauses = 60*ttl, above(in.Pauses, r.window/playedShare)
		checks = append(checks, checkFaults("pauses", only, r, seed, func(l losses) float64 { return l.perPause },
			func(o outcome) int { return o.pauses }, only.Pauses))
	}
	return checks, nil
}

func checkFaults(cause string, in Inputs, r rules, seed uint64, of func(losses) float64, count func(outcome) int, d Dist) Check {
	c := Check{Cause: cause}
	if d.Over(r.ttl) == 0 || math.IsNaN(d.Over(r.ttl)) {
		return Check{Cause: cause, Agrees: true, Remark: "none lasts long enough to matter"}
	}
	o := play(in, r, seed, checkLosses, checkAttempts)
	l := solve(in, r)
	c.Faults, c.Losses = count(o), o.losses
	background := l.rate(r) * o.live / float64(c.Faults) // by renewals that fail on their own
	c.judge(of(l) + background)
	c.Remark = fmt.Sprintf("of those over %s, one every %s", short(r.window/playedShare), short(60*r.ttl))
	return c
}

func checkFailures(in Inputs, r rules, seed uint64) Check {
	o := play(in, r, seed, checkLosses, checkAttempts)
	c := Check{Cause: "failing renewals", Faults: o.cycles, Losses: o.losses}
	c.judge(solve(in, r).rate(r) * o.live / float64(o.cycles))
	return c
}

// checkRecovery compares the 99th percentiles of a recovery: its Model and Simulated are seconds.
func checkRecovery(in Inputs, r rules, seed uint64) Check {
	const rounds = 20_000
	all := waits(in, r, seed, rounds)
	c := Check{Cause: "recovery, p99 in s", Faults: rounds, Simulated: all[rounds*99/100], Model: recovery(in, r).Total.P99.Seconds()}
	c.Ratio = c.Model / c.Simulated
	c.Agrees = c.Ratio < 1.1 && c.Ratio > 1/1.1
	return c
}

// judge compares, if there is enough to compare. What the model calls rarer than once in the whole simulation, and the simulation
// did not see, agrees.
func (c *Check) judge(model float64) {
	const enough = 50
	c.Model = model
	if c.Faults > 0 {
		c.Simulated = float64(c.Losses) / float64(c.Faults)
	}
	expected := model * float64(c.Faults)
	if c.Losses < enough {
		c.Agrees = math.Abs(float64(c.Losses)-expected) <= 3+4*math.Sqrt(expected)
		return
	}
	c.Ratio = model / c.Simulated
	c.Agrees = c.Ratio < checkFactor && c.Ratio > 1/checkFactor
}

// WriteChecks writes the comparison as a table.
func WriteChecks(w io.Writer, ttl time.Duration, checks []Check) error {
	fmt.Fprintf(w, "\nThe model against a simulation of the client, at a TTL of %v\n", ttl)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CAUSE\tPLAYED\tLOSSES\tSIMULATED\tMODEL\tRATIO\t\t")
	for _, c := range checks {
		verdict, ratio := "agrees", "-"
		if !c.Agrees {
			verdict = "DIFFERS"
		}
		if c.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", c.Ratio)
		}
		lost := fmt.Sprint(c.Losses)
		if c.Losses == 0 && c.Ratio > 0 {
			lost = "-"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Cause, c.Faults, lost, figure(c.Simulated), figure(c.Model), ratio, verdict, c.Remark)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
