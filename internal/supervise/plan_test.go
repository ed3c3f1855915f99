package supervise

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// stepper is Escalation.Step or a broken twin of it.
type stepper func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration)

// episode is one life of a command. Its right is renewed to ttl at the given instants, a stop is asked for at
// stop (0: never), and the guard oversleeps once, by lag, the first time that it is told to wait past 0.
type episode struct {
	ttl, grace, reserve time.Duration
	renewals            []time.Duration
	stop, lag           time.Duration
}

// judge plays an episode and returns what was done that should not have been.
func judge(step stepper, ep episode) error {
	e := Escalation{Deadline: ep.ttl, Grace: ep.grace, Reserve: ep.reserve}
	termed, overslept := time.Duration(-1), time.Duration(0)
	renewals := ep.renewals
	for now := time.Duration(0); now < 1000*time.Second; {
		for len(renewals) > 0 && renewals[0] <= now {
			e = e.Extend(renewals[0] + ep.ttl)
			renewals = renewals[1:]
		}
		asked := ep.stop > 0 && now >= ep.stop
		last := e.Deadline - e.Reserve
		var act Act
		var until time.Duration
		e, act, until = step(e, now, asked)
		switch {
		case act == Kill:
			return judgeKill(now, termed, max(last, overslept), ep)
		case act == Wait && until <= now:
			return fmt.Errorf("told at %v to wait until %v", now, until)
		case act == Term && termed >= 0:
			return fmt.Errorf("TERM a second time at %v", now)
		case act == Term && !asked && now < last-ep.grace:
			return fmt.Errorf("TERM at %v, unasked, with %v before the last instant", now, last-now)
		case act == Term:
			termed = now
		}
		wake := until
		if len(renewals) > 0 {
			wake = min(wake, renewals[0])
		}
		if ep.stop > now {
			wake = min(wake, ep.stop)
		}
		if ep.lag > 0 && overslept == 0 && len(renewals) == 0 {
			wake += ep.lag
			overslept = wake
		}
		now = wake
	}
	return errors.New("nothing was ever killed")
}

func judgeKill(now, termed, last time.Duration, ep episode) error {
	switch {
	case now > last:
		return fmt.Errorf("KILL at %v, the last instant was %v", now, last)
	case termed < 0 && ep.lag == 0 && ep.grace > 0:
		return fmt.Errorf("KILL at %v without TERM", now)
	case termed >= 0 && now-termed < min(ep.grace, last-termed):
		return fmt.Errorf("KILL %v after TERM, %v before the last instant, with a grace of %v", now-termed, last-now, ep.grace)
	case termed >= 0 && now-termed > ep.grace && ep.lag == 0:
		return fmt.Errorf("KILL only %v after TERM, with a grace of %v", now-termed, ep.grace)
	}
	return nil
}

func episodes() []episode {
	var all []episode
	const s = time.Second
	for _, ttl := range []time.Duration{s, 15 * s} {
		room := ttl * 2 / 3
		renewals := [][]time.Duration{
			nil,
			{ttl / 3, ttl * 2 / 3, ttl},
			{ttl / 3, ttl*4/3 - DefaultReserve(room) - DefaultGrace(room)/2}, // the second comes after TERM
		}
		for _, grace := range []time.Duration{0, DefaultGrace(room), room / 2} {
			for _, renewed := range renewals {
				for _, stop := range []time.Duration{0, ttl / 30, ttl / 2, ttl * 5 / 6} {
					for _, lag := range []time.Duration{0, DefaultGrace(room) / 2, 2 * ttl} {
						all = append(all, episode{ttl, grace, DefaultReserve(room), renewed, stop, lag})
					}
				}
			}
		}
	}
	return all
}

func judgeAll(step stepper) error {
	for _, ep := range episodes() {
		if err := judge(step, ep); err != nil {
			return fmt.Errorf("%+v: %w", ep, err)
		}
	}
	return nil
}

func TestEscalation(t *testing.T) {
	if err := judgeAll(Escalation.Step); err != nil {
		t.Fatal(err)
	}
}

// TestEscalationTwins demands that each broken policy is found out by the episodes that the right one passes.
func TestEscalationTwins(t *testing.T) {
	twins := map[string]stepper{
		"grace outlives the deadline": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			if e.begun && now < e.since+e.Grace {
				return e, Wait, e.since + e.Grace // the stop hook is given its full grace
			}
			return e.Step(now, stop)
		},
		"no grace before the deadline": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			last := e.Deadline - e.Reserve
			if !stop && !e.begun && now < last {
				return e, Wait, last
			}
			return e.Step(now, stop)
		},
		"a late renewal forgives": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			if e.begun && !stop && now < e.Deadline-e.Reserve-e.Grace {
				e.begun = false // TERM was sent, and the command is half stopped
			}
			return e.Step(now, stop)
		},
		"never killed": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			next, act, until := e.Step(now, stop)
			if act == Kill {
				return next, Wait, now + time.Hour
			}
			return next, act, until
		},
		"equality is not due": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			if now == e.Deadline-e.Reserve {
				return e, Wait, now + 1
			}
			return e.Step(now, stop)
		},
		"killed at once": func(e Escalation, now time.Duration, stop bool) (Escalation, Act, time.Duration) {
			next, act, until := e.Step(now, stop)
			if act == Term {
				act = Kill
			}
			return next, act, until
		},
	}
	for name, twin := range twins {
		t.Run(name, func(t *testing.T) {
			err := judgeAll(twin)
			if err == nil {
				t.Fatal("the episodes did not catch it")
			}
			t.Log(err)
		})
	}
}

// TestEscalationExtendAndCut: a deadline is moved on by renewals only, and back by a loss only.
func TestEscalationExtendAndCut(t *testing.T) {
	e := Escalation{Deadline: 10}
	if got := e.Extend(5).Deadline; got != 10 {
		t.Errorf("extended to an earlier instant: %v", got)
	}
	if got := e.Cut(20).Deadline; got != 10 {
		t.Errorf("cut to a later instant: %v", got)
	}
	if a, b := e.Extend(20).Deadline, e.Cut(5).Deadline; a != 20 || b != 5 {
		t.Errorf("extended to %v, cut to %v; want 20 and 5", a, b)
	}
}
