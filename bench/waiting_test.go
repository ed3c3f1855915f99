package main

import "testing"

// TestLayers: what the benchmark calls three layers makes 27 calls of one where nothing bounds them, and each bound is felt.
func TestLayers(t *testing.T) {
	for _, c := range []struct {
		k    layered
		want int
	}{
		{layered{silent: true}, 27 * 50}, {layered{}, 3 * 50}, {layered{silent: true, one: true}, 3 * 50},
		{layered{silent: true, throttled: true}, 50 + 300}, // three buckets of 500 tokens, of which a repetition takes 5
	} {
		if n, err := c.k.ask(t.Context(), 50); err != nil || n > c.want || !c.k.throttled && n != c.want {
			t.Errorf("%+v: %d calls at the bottom, want %d (%v)", c.k, n, c.want, err)
		}
	}
}
