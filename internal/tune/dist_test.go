package tune

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestDistributions(t *testing.T) {
	h, err := NewHistogram("h", []Bucket{{0.001, 0}, {0.01, 90}, {0.1, 99}, {1, 99}, {math.Inf(1), 100}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Dist{h, log(0.002, 0.05), log(5, 60), above(log(5, 60), 20), above(h, 0.05)} {
		checkDist(t, d)
	}
	for _, c := range []struct{ x, want float64 }{{0, 1}, {0.001, 1}, {0.0055, 0.55}, {0.01, 0.1}, {0.5, 0.01}, {1, 0.01}, {10, 0.0001}, {1e6, 0}} {
		if got := h.Over(c.x); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("more than %v s: probability %v, want %v", c.x, got, c.want)
		}
	}
	if l := log(5, 60); math.Abs(l.Over(60)-0.01) > 1e-9 || math.Abs(l.Over(5)-0.5) > 1e-9 {
		t.Errorf("lognormal: %v over its p99, %v over its median", l.Over(60), l.Over(5))
	}
}

// What was not seen among n is not impossible: 1,000 fast renewals do not rule out a slow one.
func TestTheTailIsNeverEmpty(t *testing.T) {
	h, err := NewHistogram("h", []Bucket{{0.01, 1000}, {math.Inf(1), 1000}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Over(0.01); got != 0.0005 {
		t.Errorf("beyond the largest of 1,000: %v, want half of one in 1,000", got)
	}
	if got := h.Over(0.1); math.Abs(got-0.000005) > 1e-12 {
		t.Errorf("beyond ten times the largest: %v, want a hundredth of that", got)
	}
}

func TestDistributionsRefuse(t *testing.T) {
	inf := math.Inf(1)
	for name, err := range map[string]error{
		"all beyond":   second(NewHistogram("h", []Bucket{{0.01, 0}, {inf, 7}}, 0)),
		"only inf":     second(NewHistogram("h", []Bucket{{inf, 7}}, 0)),
		"light tail":   second(NewHistogram("h", []Bucket{{1, 7}}, 11)),
		"no tail":      second(NewHistogram("h", []Bucket{{1, 7}}, math.NaN())),
		"median 0":     second(NewLognormal("l", 0, time.Second)),
		"p99 = median": second(NewLognormal("l", time.Second, time.Second)),
		"p99 too long": second(NewLognormal("l", time.Second, 48*time.Hour)),
	} {
		if !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
