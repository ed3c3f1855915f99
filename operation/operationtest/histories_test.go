package operationtest_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/ophistories"
	"github.com/tenure-go/tenure/operation/operationtest"
)

var _ operationtest.StepHarness = (*harness)(nil)

// Tolerance is none where the clock stands still.
func (h *harness) Tolerance() time.Duration {
	if h.clock != nil {
		return 0
	}
	return 500 * time.Millisecond
}

// TestInStepWithItself runs random histories on two memory stores, one of them on the clock that runs.
func TestInStepWithItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := ophistories.Draw(rt, newManual(), ophistories.Options{Steps: 60})
		if err := operationtest.InStep(t.Context(), newManual(), newManual(), ops); err != nil {
			rt.Fatal(err)
		}
		ops = ophistories.Draw(rt, newManual(), ophistories.Options{Steps: 60, Away: time.Second})
		if err := operationtest.InStep(t.Context(), newManual(), newHarness(), ops); err != nil {
			rt.Fatal(err)
		}
	})
}
