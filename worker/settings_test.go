package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// Settings that contradict each other are refused where they are used, by name.
func TestInvalidSettings(t *testing.T) {
	good := plain(func(context.Context, *worker.Attempt) error { return nil })
	with := func(change func(*worker.Handler[charge, receipt])) *worker.Entry {
		h := good
		change(&h)
		return worker.Handle(h)
	}
	type handler = *worker.Handler[charge, receipt]
	for field, e := range map[string]*worker.Entry{
		"kind":     with(func(h handler) { h.Kind = "" }),
		"perform":  with(func(h handler) { h.Perform = nil }),
		"timeout":  with(func(h handler) { h.Timeout = -1 }),
		"reserve":  with(func(h handler) { h.Timeout, h.Reserve = time.Second, time.Second }),
		"window":   with(func(h handler) { h.Timeout, h.Window = time.Minute, time.Minute }),
		"base":     with(func(h handler) { h.Base, h.Most = time.Hour, time.Minute }),
		"attempts": with(func(h handler) { h.MaxAttempts = 1001 }),
		"local":    with(func(h handler) { h.Local, h.Window = true, time.Hour }),
		"lease":    with(func(h handler) { h.Lease = func(charge) string { return "x" } }),
	} {
		_, err := worker.New(memory.NewOperations(memory.Options{}), worker.Options{}, e)
		var invalid *worker.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field || !errors.Is(err, worker.ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, o := range map[string]worker.Options{"ttl": {TTL: time.Millisecond}, "margin": {TTL: time.Second, Margin: time.Second}, "prefetch": {Prefetch: 2000}, "duration": {Drain: -1}} {
		_, err := worker.New(memory.NewOperations(memory.Options{}), o, worker.Handle(good))
		var invalid *worker.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := worker.New(memory.NewOperations(memory.Options{}), worker.Options{}, slices.Repeat([]*worker.Entry{worker.Handle(good)}, 2)...); !errors.Is(err, worker.ErrInvalid) {
		t.Errorf("two of a kind: %v", err)
	}
}
