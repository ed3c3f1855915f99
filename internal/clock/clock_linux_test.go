package clock

import (
	"testing"
	"time"
)

func TestParseOffsets(t *testing.T) {
	cases := []struct {
		text string
		want time.Duration
		fail bool
	}{
		{"monotonic           0         0\nboottime            0         0\n", 0, false},
		{"monotonic        1000         0\nboottime        86400 500000000\n", 86400*time.Second + 500*time.Millisecond, false},
		{"monotonic           7         0\nboottime         -100         5\n", -100*time.Second + 5, false},
		{"boottime 3 0", 3 * time.Second, false}, // no newline at the end
		{"", 0, false},
		{"monotonic 5 0\n", 0, false}, // a kernel that does not shift this clock
		{"boottime x 0\n", 0, true},
		{"boottime 1 y\n", 0, true},
	}
	for _, c := range cases {
		got, err := parseOffsets(c.text)
		if got != c.want || (err != nil) != c.fail {
			t.Errorf("%q: %v, %v; want %v, failure %v", c.text, got, err, c.want, c.fail)
		}
	}
}

// The kernel's clock and the boot id are the same for whoever asks, and the clock does not go back.
func TestKernel(t *testing.T) {
	now, bootID, err := Kernel()
	if err != nil {
		t.Fatal(err)
	}
	other, otherID, err := Kernel()
	if err != nil || otherID != bootID || len(bootID) != 36 {
		t.Errorf("boot ids %q and %q (%v)", bootID, otherID, err)
	}
	last := now()
	for i := range 1000 {
		source := now
		if i%2 == 0 {
			source = other
		}
		if next := source(); next < last {
			t.Fatalf("%v after %v", next, last)
		} else {
			last = next
		}
	}
}
