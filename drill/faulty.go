package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// fault is what becomes of a call on its way to the authority and back.
type fault string

const (
	faultNone        fault = ""
	faultLoseReply   fault = "lose-reply"   // applied; the connection is reset before the reply
	faultSilence     fault = "silence"      // applied; nothing is heard
	faultLoseRequest fault = "lose-request" // not applied; the connection is reset
	faultHang        fault = "hang"         // not applied; the call heeds nothing, not even its context
	faultPanic       fault = "panic"        // not applied; the call panics
	faultHold        fault = "hold"         // held back until it is delivered; the connection is reset
	faultDuplicate   fault = "duplicate"    // applied, and held back a second time
)

// The calls that faults can be done to.
const (
	callRenew   = "renew"
	callRelease = "release"
)

// faultyStore is the way from a worker to the authority, with the faults that the drill orders.
type faultyStore struct {
	lease.Store

	now  clock.Source         // shared by all processes of the machine
	told func(heldTill) error // hears of every acknowledgement before the worker does

	// gate is held for reading by each call, and for writing while this process is to be stopped: a call
	// that was stopped inside a write would stop everybody else.
	gate sync.RWMutex

	mu     sync.Mutex
	faults map[string]fault
	times  map[string]int // how often yet; absent: for ever
	held   []func(context.Context) error
	till   heldTill
}

// order makes calls of a kind fail, times times, 0 for ever.
func (s *faultyStore) order(call string, f fault, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[call] = f
	delete(s.times, call)
	if times > 0 {
		s.times[call] = times
	}
}

// next is the fault of the coming call.
func (s *faultyStore) next(call string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faults[call]
	if left, bounded := s.times[call]; bounded {
		if left == 0 {
			return faultNone
		}
		s.times[call] = left - 1
	}
	return f
}

// left is how many of a bounded number of faults have not occurred yet.
func (s *faultyStore) left(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[call]
}

// pass hands a call on, or does to it what was ordered.
func (s *faultyStore) pass(ctx context.Context, call string, forward func(context.Context) error) error {
	f := s.next(call)
	switch f {
	case faultLoseRequest:
		return cut(call)
	case faultHang:
		select {} // as a client library that has lost its last timeout
	case faultPanic:
		panic("drill: ordered panic in " + call)
	case faultHold:
		s.hold(forward)
		return cut(call)
	case faultDuplicate:
		s.hold(forward)
	case faultNone, faultLoseReply, faultSilence:
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	switch f {
	case faultLoseReply:
		_ = forward(context.WithoutCancel(ctx))
		return cut(call)
	case faultSilence:
		_ = forward(context.WithoutCancel(ctx))
		<-ctx.Done()
		return cut(call)
	default:
		return forward(ctx)
	}
}

func cut(call string) error { return &lease.UnknownError{Op: call, Err: errLost} }

func (s *faultyStore) hold(forward func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, forward)
}

// deliver hands what was held back to the authority, and returns what it answers.
func (s *faultyStore) deliver(ctx context.Context) error {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	if len(held) == 0 {
		return fmt.Errorf("%w: nothing was held back", ErrProcess)
	}
	var all error
	for _, forward := range held {
		all = errors.Join(all, forward(ctx))
	}
	return all
}

// acknowledge takes in until when the authority keeps others out, and tells it before the caller learns of it.
func (s *faultyStore) acknowledge(sent, remaining, holdLeft time.Duration) error {
	s.mu.Lock()
	s.till.SessionNS = max(s.till.SessionNS, int64(sent+remaining))
	if holdLeft > 0 {
		s.till.HoldNS = int64(sent + holdLeft)
	}
	till := s.till
	s.mu.Unlock()
	return s.told(till)
}

// Open is part of [lease.Store].
func (s *faultyStore) Open(ctx context.Context, req lease.OpenRequest) (left time.Duration, err error) {
	err = s.pass(ctx, "open", func(ctx context.Context) error {
		sent := s.now()
		if left, err = s.Store.Open(ctx, req); err != nil {
			return err
		}
		return s.acknowledge(sent, left, 0)
	})
	return left, err
}

// Renew is part of [lease.Store].
func (s *faultyStore) Renew(ctx context.Context, req lease.RenewRequest) (renewal lease.Renewal, err error) {
	err = s.pass(ctx, callRenew, func(ctx context.Context) error {
		sent := s.now()
		if renewal, err = s.Store.Renew(ctx, req); err != nil {
			return err
		}
		return s.acknowledge(sent, renewal.Remaining, 0)
	})
	if err != nil {
		return lease.Renewal{}, err
	}
	return renewal, nil
}

// Close is part of [lease.Store].
func (s *faultyStore) Close(ctx context.Context, session fence.ID) error {
	return s.pass(ctx, "close", func(ctx context.Context) error { return s.Store.Close(ctx, session) })
}

// Acquire is part of [lease.Store].
func (s *faultyStore) Acquire(ctx context.Context, req lease.AcquireRequest) (grants []lease.Grant, err error) {
	err = s.pass(ctx, "acquire", func(ctx context.Context) error {
		sent := s.now()
		if grants, err = s.Store.Acquire(ctx, req); err != nil {
			return err
		}
		return s.acknowledge(sent, grants[0].Remaining, grants[0].HoldLeft)
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Release is part of [lease.Store].
func (s *faultyStore) Release(ctx context.Context, req lease.ReleaseRequest) (released lease.Released, err error) {
	err = s.pass(ctx, callRelease, func(ctx context.Context) error {
		released, err = s.Store.Release(ctx, req)
		return err
	})
	return released, err
}
