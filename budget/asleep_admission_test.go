package budget_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
)

// TestNobodyIsLetInAfterASleep: admission starts nothing under a budget that was slept through, nor under one that a sleep has left less than the least of.
func TestNobodyIsLetInAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := admission.New(admission.Options{Minimum: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for sleep, want := range map[time.Duration]error{time.Minute: admission.ErrShed, 9 * time.Second: budget.ErrNoTime, time.Second: nil} {
			slept := time.Duration(0)
			b, err := budget.Start(t.Context(), 10*time.Second, budget.Asleep(&slept))
			if err != nil {
				t.Fatal(err)
			}
			slept = sleep
			release, err := l.Acquire(b.Context(), admission.Work)
			if !errors.Is(err, want) || want != nil && budget.ClassOf(err) != budget.NotSent {
				t.Errorf("after %v: %v", sleep, err)
			}
			if err == nil {
				release(admission.Succeeded)
			}
			b.End()
		}
	})
}
