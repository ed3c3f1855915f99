package inbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

// TestOptions demands that a window is filled in, and kept within its bounds.
func TestOptions(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{0: inbox.DefaultWindow, inbox.MinWindow: inbox.MinWindow, inbox.MaxWindow: inbox.MaxWindow} {
		o := inbox.Options{Window: window}
		if err := o.Check(); err != nil || o.Window != want {
			t.Errorf("with %v: %v, %v", window, o.Window, err)
		}
	}
	for _, window := range []time.Duration{-1, 1, inbox.MinWindow - 1, inbox.MaxWindow + 1} {
		o := inbox.Options{Window: window}
		if err := o.Check(); !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("with %v: %v", window, err)
		}
	}
}

// TestPruneKeepsTheWindow demands that nothing within the window may be forgotten.
func TestPruneKeepsTheWindow(t *testing.T) {
	o := inbox.Options{Window: time.Hour}
	if err := o.CheckPrune(time.Hour, inbox.MaxPrune); err != nil {
		t.Error(err)
	}
	if err := o.CheckPrune(time.Hour-1, 1); !errors.Is(err, inbox.ErrInvalid) || !strings.Contains(err.Error(), "shorter than the window") {
		t.Errorf("less than the window: %v", err)
	}
}

// TestErrors demands that each error matches its own kind alone, keeps its cause, and says what to do.
func TestErrors(t *testing.T) {
	cause := errors.New("reset by peer")
	kinds := []error{inbox.ErrInvalid, inbox.ErrUnknown, inbox.ErrUnavailable}
	for i, err := range []error{&inbox.InvalidError{Field: "consumer", Problem: "empty"}, &inbox.UnknownError{Op: "prune", Err: cause}, &inbox.UnavailableError{Op: "prune", Err: cause}} {
		for n, kind := range kinds {
			if errors.Is(err, kind) != (n == i) {
				t.Errorf("%v matches %q: %v", err, kind, n != i)
			}
		}
		if says := []string{"consumer: empty", "the same call again settles it", "prune was not applied"}[i]; !strings.Contains(err.Error(), says) || errors.Is(err, cause) != (i > 0) {
			t.Errorf("%q does not say %q, or has no cause", err, says)
		}
	}
}
