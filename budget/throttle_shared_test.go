package budget

import "testing"

// TestUnnamedIsADestination: calls without a name have a bucket of their own, which the successes of others do not fill.
func TestUnnamedIsADestination(t *testing.T) {
	th, err := NewThrottle(ThrottleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for th.allow("", false) {
		continue
	}
	for range 1000 {
		th.succeeded("healthy")
	}
	if left := th.Left(""); left != 0 {
		t.Errorf("%d left after another's successes", left)
	}
}

// TestManyDestinations: those beyond the number share a bucket, and say what is in it; one that has recovered makes room for another.
func TestManyDestinations(t *testing.T) {
	th, err := NewThrottle(ThrottleOptions{Tokens: 10, Destinations: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "c"} {
		if !th.allow(name, false) {
			t.Error(name)
		}
	}
	if th.allow("d", false) || th.Left("c") != 0 || th.Left("d") != 0 || th.Left("a") != 5 {
		t.Errorf("c and d share: %d, %d left; a has %d", th.Left("c"), th.Left("d"), th.Left("a"))
	}
	for range 5 {
		th.succeeded("a")
	}
	if len(th.to) != 1 || !th.allow("d", false) || th.Left("d") != 5 {
		t.Errorf("%d are kept; d has %d left", len(th.to), th.Left("d"))
	}
	for range 10 {
		th.succeeded("e")
	}
	if th.rest != nil || th.Left("e") != 10 {
		t.Errorf("%d left of what is shared", th.Left("e"))
	}
}
