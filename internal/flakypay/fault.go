package flakypay

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// Fault is what goes wrong with one request. Its parts come in the order of the fields. The zero value: nothing does.
type Fault struct {
	Name string // text for the ledger
	// Unserved: the request is read and nothing else: no effect, and no answer.
	Unserved Absence
	// Refuse refuses. 429 and 503 do so before the key is looked at, also where an earlier request had its effect. 402 concerns what would have had an effect; an
	// inquiry is not refused so.
	Refuse Refusal
	// Before delays what is asked for, which happens all the same if the client has gone meanwhile. HoldBefore names a gate to wait at, after that.
	Before     time.Duration
	HoldBefore string
	// Forget forgets the key in the step of its effect. Not of inquiries.
	Forget bool
	// After delays the answer, and HoldAfter names a gate.
	After     time.Duration
	HoldAfter string
	// Ending is what the connection is given of the answer.
	Ending Ending
	// Webhooks is how many times the answer is delivered by webhook, each WebhookAfter after the connection's end or the one before. Not of inquiries, nor of what is
	// neither an effect nor a 402.
	Webhooks     int
	WebhookAfter time.Duration
}

// Refusal is an answer without an effect. The zero value is none.
type Refusal struct {
	Status     int           // 402, 429 or 503
	Reason     string        // of 402
	Final      bool          // of 402: this key will never have an effect; stored as the key's answer, except by a provider that forgets any
	RetryAfter time.Duration // of 429 and 503; rounded up to whole seconds
}

// Absence is how a provider is down.
type Absence int

// How a provider is down. As a fault the connection was accepted and the request read, as by [Provider.Down] new connections are not.
const (
	Served   Absence = iota
	Refusing         // connections are reset
	Silent           // they are accepted, and never answered
)

// Ending is what becomes of an answer on its connection.
type Ending int

// What becomes of an answer on its connection.
const (
	AnswerWhole   Ending = iota
	Reset                // the connection is reset instead
	Closed               // it is closed in order, without an answer
	Half                 // it is closed after half of the body
	NeverAnswered        // it stays open without an answer until the client goes or the provider ends
)

const delay = 20 * time.Millisecond // of the named faults; a field set otherwise is another

// Named returns a fault by its name, with delays of 20 ms. The names are those of [Names].
func Named(name string) (f Fault, ok bool) {
	switch name {
	case "lost":
		f.Ending = Reset
	case "lost-closed":
		f.Ending = Closed
	case "lost-half":
		f.Ending = Half
	case "lost-silent":
		f.Ending = NeverAnswered
	case "late":
		f.After = delay
	case "late-webhook":
		f.Ending, f.Webhooks, f.WebhookAfter = Reset, 1, delay
	case "twice":
		f.Webhooks = 2
	case "refused":
		f.Refuse = Refusal{Status: 402, Reason: "declined"}
	case "refused-final":
		f.Refuse = Refusal{Status: 402, Reason: "card closed", Final: true}
	case "throttled":
		f.Refuse = Refusal{Status: 429, RetryAfter: time.Second}
	case "unavailable":
		f.Refuse = Refusal{Status: 503, RetryAfter: time.Second}
	case "slow":
		f.Before = delay
	case "down":
		f.Unserved = Refusing
	case "silent":
		f.Unserved = Silent
	case "forget":
		f.Forget = true
	default:
		return f, false
	}
	f.Name = name
	return f, true
}

// Names are the names of faults.
func Names() []string {
	return []string{"lost", "lost-closed", "lost-half", "lost-silent", "late", "late-webhook", "twice", "refused", "refused-final", "throttled", "unavailable", "slow", "down", "silent", "forget"}
}

// EveryFault gives each fault that a configuration allows the probability p. The result is for its Chances.
func EveryFault(c Config, p float64) (all []Chance) {
	for _, name := range Names() {
		if f, _ := Named(name); c.checkFault(f) == "" {
			all = append(all, Chance{f, p})
		}
	}
	return all
}

// ParseFault reads what the header Flaky-Fault holds: a name, then settings: "late; after_ms=50; hold_before=g". The settings are before_ms, after_ms,
// webhook_after_ms, webhooks, hold_before and hold_after; the name may be "none".
func ParseFault(text string) (Fault, error) {
	parts := strings.Split(text, ";")
	name := strings.TrimSpace(parts[0])
	f, ok := Named(name)
	if !ok && name != "none" {
		return f, &ConfigError{"Flaky-Fault", fmt.Sprintf("%q names no fault", name)}
	}
	for _, part := range parts[1:] {
		setting, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseUint(value, 10, 31)
		d := time.Duration(n) * time.Millisecond
		switch setting {
		case "hold_before":
			f.HoldBefore, err = value, nil
		case "hold_after":
			f.HoldAfter, err = value, nil
		case "before_ms":
			f.Before = d
		case "after_ms":
			f.After = d
		case "webhook_after_ms":
			f.WebhookAfter = d
		case "webhooks":
			f.Webhooks = int(n)
		default:
			return f, &ConfigError{"Flaky-Fault", fmt.Sprintf("%q is no setting", setting)}
		}
		if err != nil {
			return f, &ConfigError{"Flaky-Fault", fmt.Sprintf("%s is %q; want a number", setting, value)}
		}
	}
	return f, nil
}

// choose is the fault of a request. problem says why it cannot be: nothing happens then.
func (p *Provider) choose(call Call, header string) (f Fault, problem string) {
	if header != "" && p.c.HeaderFaults {
		f, err := ParseFault(header)
		if err != nil {
			return Fault{}, err.Error()
		}
		return f, p.c.checkFault(f)
	}
	if p.c.Script != nil {
		if f = p.c.Script(call); f != (Fault{}) {
			return f, p.c.checkFault(f)
		}
	}
	x := draw(p.c.Seed, call)
	for _, chance := range p.c.Chances {
		if x < chance.P {
			return chance.Fault, ""
		}
		x -= chance.P
	}
	return Fault{}, ""
}

// draw is a number in [0, 1) that follows from the seed and what is asked how often, and from nothing else: not from the order of what is asked under other keys.
func draw(seed uint64, call Call) float64 {
	h := fnv.New64a()
	var fixed [16]byte
	binary.LittleEndian.PutUint64(fixed[:8], seed)
	binary.LittleEndian.PutUint64(fixed[8:], uint64(call.Nth))
	_, _ = h.Write(fixed[:]) // a hash takes everything
	_, _ = h.Write([]byte(string(call.Op) + "\x00" + string(call.Verb) + "\x00" + call.Key))
	x := h.Sum64() // FNV leaves the high bits of short inputs alike; two rounds of mixing do not
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
