package relay

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// Options of a relay. 0 is the default of each.
type Options struct {
	Name string // for operators; at most outbox.MaxRelay bytes
	// Topics are what this relay claims; none: every topic. Where topics have destinations of their own, so have they relays: an outage of one destination holds up all the topics of its relay.
	Topics []string

	Batch int           // messages of one claim; 1,000, and at most outbox.MaxBatch
	Bytes int           // of their payloads; 4 MiB
	TTL   time.Duration // of a claim; 30 s. After a relay has died, its messages wait for so long. It must hold the time that the destination takes for a batch
	// Margin is how long before the end of its claim a relay hands over nothing more; a tenth of TTL, at least 10 ms. It covers clocks that run at different rates, and what a hand-over takes to begin.
	Margin time.Duration

	// MaxAttempts is after how many a message is given up; 20. A message that kills its relay uses up attempts of all that were claimed with it, until it is handed out alone: have it well above outbox.LostBefore.
	MaxAttempts int
	RetryFirst  time.Duration // at most so long after a first failure; 1 s. The pause is random up to that, and what it is random up to doubles
	RetryMost   time.Duration // 5 min
	RestMost    time.Duration // the longest pause while the destination, or the store, is away, unless the destination asks for more: up to ten minutes of that are heeded; 30 s

	Poll  time.Duration // between two looks that find nothing; 1 s
	Drain time.Duration // how long Run waits, when its context has ended, for what was handed over; 10 s

	// Keep is how long what was delivered is kept for replays; 0: it is not pruned here. KeepDead is the same of dead letters. They need a store that is an [outbox.Office], and any number of relays may do it.
	Keep, KeepDead time.Duration

	Log *slog.Logger // nil: slog.Default
	// OnEvent is called for each event, by the relay's own goroutine: it returns soon. nil: none.
	OnEvent func(Event)
}

// Kind is what an event tells. The zero value is none.
type Kind int

// The kinds.
const (
	GivenUp   Kind = iota + 1 // a message went to the dead letters
	Late                      // what became of a message was told after another claim had followed
	Outage                    // the destination takes nothing
	Recovered                 // it does again
	Hanging                   // the destination has not returned, and the claim is over: this relay hands over nothing until it does, and others publish these messages again
)

// String is the kind as texts use it.
func (k Kind) String() string {
	if k < GivenUp || k > Hanging {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return [...]string{"given up", "late", "outage", "recovered", "hanging"}[k-1]
}

// Event is something that an operator may want to know at once.
type Event struct {
	Kind    Kind
	Message outbox.Delivery // of one message; its payload is not to be changed
	Err     error
}

func (o *Options) withDefaults() {
	set(&o.Batch, 1000)
	set(&o.Bytes, 4<<20)
	set(&o.TTL, 30*time.Second)
	set(&o.Margin, max(o.TTL/10, 10*time.Millisecond))
	set(&o.MaxAttempts, 20)
	set(&o.RetryFirst, time.Second)
	set(&o.RetryMost, 5*time.Minute)
	set(&o.RestMost, 30*time.Second)
	set(&o.Poll, time.Second)
	set(&o.Drain, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

func set[T comparable](field *T, otherwise T) {
	var zero T
	if *field == zero {
		*field = otherwise
	}
}

func (o *Options) check(store outbox.Store) error {
	probe := outbox.ClaimRequest{Claim: [16]byte{1}, Relay: o.Name, Topics: o.Topics, Limit: o.Batch, Bytes: o.Bytes, TTL: o.TTL, MaxAttempts: o.MaxAttempts}
	if err := probe.Check(); err != nil {
		return &InvalidError{"options", err.Error()}
	}
	for field, d := range map[string]time.Duration{"retry first": o.RetryFirst, "retry most": o.RetryMost, "rest most": o.RestMost, "poll": o.Poll, "drain": o.Drain} {
		if d < leastPause || d > outbox.MaxRetryIn {
			return &InvalidError{field, fmt.Sprintf("%v; want %v to %v", d, leastPause, outbox.MaxRetryIn)}
		}
	}
	if o.Margin < 0 || o.Margin >= o.TTL/2 {
		return &InvalidError{"margin", fmt.Sprintf("%v; want less than half of the TTL, %v", o.Margin, o.TTL)}
	}
	if o.RetryFirst > o.RetryMost {
		return &InvalidError{"retry first", fmt.Sprintf("%v is more than retry most, %v", o.RetryFirst, o.RetryMost)}
	}
	if o.Keep == 0 && o.KeepDead == 0 {
		return nil
	}
	if _, ok := store.(outbox.Office); !ok {
		return &InvalidError{"keep", "this store cannot prune"}
	}
	prune := o.prune()
	if err := prune.Check(); err != nil {
		return &InvalidError{"keep", err.Error()}
	}
	return nil
}

func (o *Options) prune() outbox.PruneRequest {
	return outbox.PruneRequest{Delivered: o.Keep, Dead: o.KeepDead, Limit: outbox.MaxMove}
}
