package stats

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1, 1000}, 1},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestMedianLeavesItsArgument(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	Percentile(values, 50)
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Errorf("the values were sorted in place: %v", values)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // falling, so that the function must sort
	}
	for _, c := range []struct {
		values  []float64
		p, want float64
	}{
		{nil, 99, 0},
		{[]float64{5}, 99, 5},
		{hundred, 99, 99},
		{hundred, 50, 50},
		{hundred, 100, 100},
		{hundred, 0, 1},
		{hundred, 0.5, 1},
		{hundred, 250, 100},
		{hundred, -1, 1},
		{[]float64{1, 2, 3, 4}, 50, 2},
		{[]float64{1, 2, 3, 4}, 51, 3},
		// Of 50 values the 99th percentile is the largest: a tail is never talked away.
		{hundred[:50], 99, 100},
	} {
		if got := Percentile(c.values, c.p); got != c.want {
			t.Errorf("Percentile(%d values, %v) = %v, want %v", len(c.values), c.p, got, c.want)
		}
	}
}

func TestRatios(t *testing.T) {
	got := Ratios([]float64{10, 30, 8, 99}, []float64{5, 10, 0})
	if !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("Ratios = %v, want [2 3]", got)
	}
	// The machine is half as fast in the second round: the ratio does not see it.
	if got := Ratios([]float64{100, 50}, []float64{10, 5}); !slices.Equal(got, []float64{10, 10}) {
		t.Errorf("Ratios = %v, want [10 10]", got)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{4}, 1},
		{[]float64{2, 8, 4}, 4},
		{[]float64{0, 8}, 0},
	} {
		if got := Spread(c.values); got != c.want {
			t.Errorf("Spread(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}
