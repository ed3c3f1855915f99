package worker

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// Ended is an attempt that was reported, for [Options.OnAttempt].
type Ended struct {
	operation.Ref
	Kind    string
	Ordinal int
	Known   operation.Known
	// Err is nil if the store recorded the report; what it answered otherwise, such as an error matching [operation.ErrStale].
	Err error
	// Waited is from the claim to the start, Took from there to its end; both are 0 for what was never begun.
	Waited, Took time.Duration
	Panicked     bool
}

// KindStats counts what became of the attempts of one kind.
type KindStats struct {
	Kind    string
	Claimed uint64
	// What was recorded, by what is known.
	Effective, Refused, NotSent, NoAnswer uint64
	Stale                                 uint64        // reports that came too late, or of an attempt that another has followed
	Took                                  time.Duration // all attempts together
	Longest                               time.Duration
	Running, Waiting, Abandoned           int // now
}

// Stats are for metrics. Counts are since the worker was made.
type Stats struct {
	Kinds                        []KindStats // in the order of the handlers
	Started                      uint64      // attempts whose handlers were called
	GivenBack                    uint64      // operations that were claimed and could not begin in time
	LostClaims                   uint64      // of running attempts
	Renewals, FailedRenewals     uint64      // calls
	FailedClaims                 uint64      // calls
	Panics                       uint64
	Evidence                     uint64        // of stale attempts, that was recorded
	Conflicts                    uint64        // that it made known
	EverAbandoned                uint64        // handlers that did not return in time
	Abandoned                    int           // of those, the ones that still run
	Running, Waiting, Unreported int           // now
	Oldest                       time.Duration // age of the oldest claim, when it was last looked at
}

// Stats returns the figures as they are now.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Running, s.Unreported = w.running, w.unreported
	s.Kinds = slices.Grow([]KindStats(nil), len(w.kinds))
	for _, k := range w.kinds {
		ks := k.stats
		ks.Running, ks.Waiting, ks.Abandoned = k.running, len(k.queue), k.abandoned
		s.Waiting += ks.Waiting
		s.Kinds = append(s.Kinds, ks)
	}
	return s
}

func (k *kindState) countLocked(known operation.Known) {
	switch known {
	case operation.Effective:
		k.stats.Effective++
	case operation.Refused:
		k.stats.Refused++
	case operation.NotSent:
		k.stats.NotSent++
	case operation.NoAnswer:
		k.stats.NoAnswer++
	case operation.Open:
	}
}

// tell hands an attempt to the hook.
func (w *Worker) tell(t *task, err error) {
	if w.o.OnAttempt == nil {
		return
	}
	e := Ended{Ref: t.report.Ref, Kind: t.kind.e.name, Ordinal: t.attempt.job.Ordinal, Known: t.report.Known, Err: err, Panicked: t.panicked}
	if !t.began.IsZero() {
		e.Waited, e.Took = t.waited, t.took
	}
	w.o.OnAttempt(e)
}
