package tune

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestRecommend(t *testing.T) {
	plan, err := Recommend(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	best := plan.Points[plan.Best]
	if !plan.Met || best.TTL < 10*time.Second || best.TTL > 45*time.Second || best.LossPerDay > plan.Inputs.Target {
		t.Errorf("by default: %+v", best)
	}
	for i, p := range plan.Points {
		if p.Unfit == "" && p.CostPerDay < best.CostPerDay {
			t.Errorf("%v is cheaper than %v and within the bounds", p.TTL, best.TTL)
		}
		if p.Recovery.Total.P50 > p.Recovery.Total.P99 || p.Recovery.Remaining.P50 < p.TTL*2/3 || p.Recovery.Remaining.P99 > p.TTL+time.Second {
			t.Errorf("%v: recovery %+v", p.TTL, p.Recovery)
		}
		if p.Margin > p.TTL/2 || p.Margin.Seconds() < p.TTL.Seconds()*clockRates || p.IntervalMost > p.TTL-p.Margin {
			t.Errorf("%v: margin %v, interval %v", p.TTL, p.Margin, p.IntervalMost)
		}
		if i == 0 {
			continue
		}
		before := plan.Points[i-1]
		if p.LossPerDay > before.LossPerDay*1.0001 || p.RenewalsPerSecond >= before.RenewalsPerSecond || p.Recovery.Total.P50 <= before.Recovery.Total.P50 {
			t.Errorf("from %v to %v: loss %v to %v, renewals %v to %v, recovery %v to %v", before.TTL, p.TTL, before.LossPerDay, p.LossPerDay,
				before.RenewalsPerSecond, p.RenewalsPerSecond, before.Recovery.Total.P50, p.Recovery.Total.P50)
		}
	}
}

// A TTL of 10 s does not mean recovery in 10 s.
func TestRecoveryIsMoreThanTheTTL(t *testing.T) {
	in := Defaults()
	in.Start, in.Poll = 4*time.Second, 5*time.Second
	p, err := Evaluate(in, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	r := p.Recovery
	sum := r.Remaining.Mean + r.Waking.Mean + r.Retries.Mean + r.Start.Mean
	if d := r.Total.Mean - sum; d < -time.Millisecond || d > time.Millisecond {
		t.Errorf("the parts' means make %v, the whole's is %v", sum, r.Total.Mean)
	}
	if r.Total.P99 < 15*time.Second || r.Start.P50 != 4*time.Second || r.Waking.P99 < 4500*time.Millisecond || r.Waking.P99 > 5*time.Second {
		t.Errorf("recovery %+v", r)
	}
	if p.Budget < r.Total.P99+p.Reserve {
		t.Errorf("a waiter's budget of %v does not cover %v and a reserve of %v", p.Budget, r.Total.P99, p.Reserve)
	}
}

// Each input moves the recommendation where it should.
func TestRecommendFollowsItsInputs(t *testing.T) {
	base := best(t, func(*Inputs) {})
	for name, c := range map[string]struct {
		change func(*Inputs)
		longer bool
	}{
		"a stricter target":            {func(in *Inputs) { in.Target = 0.0001 }, true},
		"longer outages":               {func(in *Inputs) { in.Outages = log(60, 600) }, true},
		"outages more often":           {func(in *Inputs) { in.OutageEvery /= 20 }, true},
		"long pauses":                  {func(in *Inputs) { in.Pauses = log(1, 30) }, true},
		"a bound on renewals":          {func(in *Inputs) { in.MaxRenewals = 0.05 }, true},
		"dear reclaims":                {func(in *Inputs) { in.CostPerReclaim = 1e5 }, true},
		"no outages":                   {func(in *Inputs) { in.OutageEvery = 0 }, false},
		"no pauses, no outages":        {func(in *Inputs) { in.PauseEvery, in.OutageEvery = 0, 0 }, false},
		"a loose target, many crashes": {func(in *Inputs) { in.Target, in.CrashEvery = 0.5, time.Hour }, false},
	} {
		if got := best(t, c.change); (got.TTL > base.TTL) != c.longer || got.TTL == base.TTL {
			t.Errorf("with %s the TTL is %v, without %v", name, got.TTL, base.TTL)
		}
	}
}

func best(t *testing.T, change func(*Inputs)) Point {
	t.Helper()
	in := Defaults()
	change(&in)
	plan, err := Recommend(in)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Points[plan.Best]
}

func TestNothingIsWithinTheBounds(t *testing.T) {
	in := Defaults()
	in.Outages, in.OutageEvery, in.Target = log(3000, 20_000), time.Hour, 1e-9
	plan, err := Recommend(in)
	if err != nil || plan.Met {
		t.Fatalf("%v, met %v", err, plan.Met)
	}
	for _, p := range plan.Points {
		if p.LossPerDay < plan.Points[plan.Best].LossPerDay {
			t.Errorf("%v loses less often than %v", p.TTL, plan.Points[plan.Best].TTL)
		}
	}
	var text strings.Builder
	if err := plan.WriteText(&text); err != nil || !strings.Contains(text.String(), "no TTL is within the bounds") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestADayHasADay: crashes that come faster than recoveries end block a resource all day, and no longer.
func TestADayHasADay(t *testing.T) {
	in := Defaults()
	in.CrashEvery = time.Nanosecond
	p, err := Evaluate(in, 20*time.Second)
	if err != nil || p.BlockedPerDay != 24*time.Hour || p.CostPerDay > 2*day*in.CostPerSecond {
		t.Errorf("blocked %v a day, cost %v, %v", p.BlockedPerDay, p.CostPerDay, err)
	}
}

func TestInputsOutOfRange(t *testing.T) {
	for name, change := range map[string]func(*Inputs){
		"failures":        func(in *Inputs) { in.Failures = 0.95 },
		"failures NaN":    func(in *Inputs) { in.Failures = math.NaN() },
		"hang":            func(in *Inputs) { in.Hang = 1.5 },
		"sessions":        func(in *Inputs) { in.Sessions = 0 },
		"crash":           func(in *Inputs) { in.CrashEvery = -time.Second },
		"start":           func(in *Inputs) { in.Start = -1 },
		"poll":            func(in *Inputs) { in.Poll = 48 * time.Hour },
		"cost":            func(in *Inputs) { in.CostPerSecond = -1 },
		"infinite cost":   func(in *Inputs) { in.CostPerReclaim = math.Inf(1) },
		"target 0":        func(in *Inputs) { in.Target = 0 },
		"target 1":        func(in *Inputs) { in.Target = 1 },
		"renewals":        func(in *Inputs) { in.MaxRenewals = -1 },
		"pauses too many": func(in *Inputs) { in.PauseEvery = time.Microsecond },
		"nothing":         func(in *Inputs) { in.Renewals = nil },
		"margin":          func(in *Inputs) { in.Margin = -time.Second },
		"margin too long": func(in *Inputs) { in.Margin = 10 * time.Hour },
	} {
		in := Defaults()
		change(&in)
		if _, err := Recommend(in); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, ttl := range []time.Duration{0, -1, time.Microsecond, 100 * time.Millisecond, 25 * time.Hour} {
		if _, err := Recommend(Defaults(), ttl); !errors.Is(err, ErrInput) {
			t.Errorf("ttl %v: %v", ttl, err)
		}
		if _, err := Evaluate(Defaults(), ttl); !errors.Is(err, ErrInput) {
			t.Errorf("ttl %v: %v", ttl, err)
		}
	}
	in := Defaults()
	in.Grain = time.Second
	if _, err := Evaluate(in, 2500*time.Millisecond); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "multiples of 1s") {
		t.Error(err)
	}
}

// The longest TTL there is takes no time to speak of, and its figures are numbers.
func TestTheLongestTTL(t *testing.T) {
	p, err := Evaluate(Defaults(), 24*time.Hour)
	if err != nil || math.IsNaN(p.LossPerDay) || math.IsNaN(p.CostPerDay) || p.LossPerDay > 1e-6 {
		t.Errorf("%v, %+v", err, p)
	}
}

// TestSimulateAgrees: what tenure tune --simulate prints, for the defaults and for inputs far from them.
func TestSimulateAgrees(t *testing.T) {
	for name, change := range map[string]func(*Inputs){
		"defaults":  func(*Inputs) {},
		"no faults": never,
		"bad":       func(in *Inputs) { in.Failures, in.Renewals, in.Hang = 0.3, log(0.3, 4), 1 },
	} {
		in := Defaults()
		change(&in)
		checks, err := Simulate(in, 15*time.Second, 7)
		if err != nil || len(checks) < 2 {
			t.Fatalf("%s: %v, %+v", name, err, checks)
		}
		for _, c := range checks {
			if !c.Agrees {
				t.Errorf("%s: %+v", name, c)
			}
		}
		var text strings.Builder
		if err := WriteChecks(&text, 15*time.Second, checks); err != nil || !strings.Contains(text.String(), "agrees") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
}

// A check that differs says so: the comparison is not made to pass.
func TestSimulateTellsWhatDiffers(t *testing.T) {
	for name, c := range map[string]Check{
		"too many":               {Faults: 1000, Losses: 400},
		"too few":                {Faults: 1000, Losses: 60},
		"none where many should": {Faults: 1000},
	} {
		c.judge(0.2)
		if c.Agrees {
			t.Errorf("%s agrees: %+v", name, c)
		}
	}
}
