package operation

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// at is an operation whose attempts are known so.
func at(t *testing.T, known ...Known) *Operation {
	t.Helper()
	o := &Operation{ID: "o", Kind: "charge", Fingerprint: FingerprintOf("charge", []byte("1")), State: Pending}
	for i, k := range known {
		var err error
		if o, err = o.Begin(fence.Token(i+1), "w", true); err != nil {
			t.Fatal(err)
		}
		if k == Open {
			continue
		}
		if o, err = o.Report(fence.Token(i+1), Answer{Known: k, Result: []byte("r")}); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// TestO53SameIdentity is fault 23 too: another request or kind under an id that is known is a mismatch in every state, also while it is in progress.
func TestO53SameIdentity(t *testing.T) {
	for _, o := range []*Operation{at(t), at(t, Open), at(t, NoAnswer), at(t, Effective)} {
		if err := o.Same("charge", FingerprintOf("charge", []byte("1"))); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{"request": o.Same("charge", FingerprintOf("charge", []byte("2"))), "kind": o.Same("refund", FingerprintOf("refund", []byte("1")))} {
			var mismatch *MismatchError
			if !errors.As(err, &mismatch) || mismatch.What != what || !errors.Is(err, ErrMismatch) {
				t.Errorf("%v, another %s: %v", o.State, what, err)
			}
		}
	}
	if FingerprintOf("ab", []byte("c")) == FingerprintOf("a", []byte("bc")) {
		t.Error("a kind runs into its request")
	}
}

// TestReports: what follows from what is learned of an attempt.
func TestReports(t *testing.T) {
	for name, c := range map[string]struct {
		before    *Operation
		attempt   fence.Token
		answer    Answer
		want      State
		err       error
		conflicts int
	}{
		"the current one succeeds":                    {at(t, Open), 1, Answer{Known: Effective}, Succeeded, nil, 0},
		"it does not know":                            {at(t, Open), 1, Answer{Known: NoAnswer}, Uncertain, nil, 0},
		"it did not send":                             {at(t, Open), 1, Answer{Known: NotSent}, Pending, nil, 0},
		"refused for now":                             {at(t, Open), 1, Answer{Known: Refused}, Pending, nil, 0},
		"refused for good":                            {at(t, Open), 1, Answer{Known: Refused, Final: true}, Failed, nil, 0},
		"refused, and one before it is unknown":       {at(t, NoAnswer, Open), 2, Answer{Known: Refused, Final: true}, Uncertain, nil, 0},
		"the one before it is refused too":            {at(t, NoAnswer, Refused), 1, Answer{Known: Refused}, Pending, ErrStale, 0},
		"O2b: a stale one fails while another runs":   {at(t, NoAnswer, Open), 1, Answer{Known: Refused, Final: true}, Attempting, ErrStale, 0},
		"a stale one succeeds while another runs":     {at(t, NoAnswer, Open), 1, Answer{Known: Effective}, Succeeded, nil, 0},
		"a late success of an uncertain one":          {at(t, NoAnswer), 1, Answer{Known: Effective}, Succeeded, nil, 0},
		"the same again":                              {at(t, Effective), 1, Answer{Known: Effective, Result: []byte("r")}, Succeeded, nil, 0},
		"another result":                              {at(t, Effective), 1, Answer{Known: Effective, Result: []byte("x")}, Succeeded, ErrStale, 1},
		"another attempt refused, after the decision": {at(t, NoAnswer, Effective), 1, Answer{Known: Refused}, Succeeded, nil, 0},
		"O14: no answer, after the decision":          {at(t, Effective), 1, Answer{Known: NoAnswer}, Succeeded, nil, 0},
		"an attempt that was never recorded":          {at(t, Open), 7, Answer{Known: Effective}, 0, ErrInvalid, 0},
		"an answer that is none":                      {at(t, Open), 1, Answer{Known: Open}, 0, ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := c.before.Report(c.attempt, c.answer)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if c.want == 0 {
				if after != nil {
					t.Errorf("it is %v after an answer that is refused", after.State)
				}
				return
			}
			if after.State != c.want || len(after.Conflicts) != c.conflicts {
				t.Errorf("%v with %d conflicts, want %v with %d", after.State, len(after.Conflicts), c.want, c.conflicts)
			}
		})
	}
}

// TestO2bStaleCompletion: a stale worker that returns success while another attempt runs completes nothing, so that its own transaction rolls back; the
// other attempt's failure is kept. The same word as the provider's evidence decides.
func TestO2bStaleCompletion(t *testing.T) {
	o := at(t, NoAnswer, Open)
	var stale *StaleError
	if after, err := o.Complete(1, Answer{Known: Effective}); after != nil || !errors.As(err, &stale) || stale.Newer != 2 {
		t.Fatalf("%+v, %v", after, err)
	}
	failed, err := o.Complete(2, Answer{Known: Refused, Reason: "no funds", Final: true})
	if err != nil || failed.State != Uncertain || failed.Attempts[1].Reason != "no funds" {
		t.Fatalf("%+v, %v", failed, err)
	}
	for _, before := range []*Operation{failed, at(t, Effective)} {
		if after, err := before.Complete(before.Current(), Answer{Known: Effective}); after != nil || !errors.Is(err, ErrStale) {
			t.Errorf("completed twice: %+v, %v", after, err)
		}
	}
	if after, err := failed.Report(1, Answer{Known: Effective}); err != nil || after.State != Succeeded || after.Attempts[1].Reason != "no funds" {
		t.Errorf("%+v, %v", after, err)
	}
}

// TestConflictsAreKeptOnce: a success against a decision is recorded, and the decision stays; its repetition adds nothing.
func TestConflictsAreKeptOnce(t *testing.T) {
	o, err := at(t, NoAnswer).Resolve(Failed, nil, "the provider's list does not have it")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if o, err = o.Report(1, Answer{Known: Effective, Result: []byte("r")}); !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
	}
	if o.State != Failed || len(o.Conflicts) != 1 || string(o.Conflicts[0].Result) != "r" || o.Attempts[0].Known != Effective {
		t.Errorf("%+v", o)
	}
}

// TestBeginning: a decided operation has no further attempt, and one whose effect may have happened has one only within the provider's window.
func TestBeginning(t *testing.T) {
	for name, c := range map[string]struct {
		before *Operation
		again  bool
		want   error
	}{
		"the first": {at(t), false, nil}, "after a refusal": {at(t, Refused), false, nil}, "after one that was not sent": {at(t, NotSent, Refused), false, nil},
		"while one is open": {at(t, Open), false, ErrUndecided}, "after one that is unknown": {at(t, NoAnswer, Refused), false, ErrUndecided},
		"within the window": {at(t, NoAnswer), true, nil}, "decided": {at(t, Effective), true, ErrDecided},
	} {
		o, err := c.before.Begin(9, "w", c.again)
		if !errors.Is(err, c.want) || err == nil && (o.State != Attempting || o.Current() != 9) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := at(t, Refused).Begin(1, "w", false); !errors.Is(err, ErrInvalid) {
		t.Errorf("a number that was used: %v", err)
	}
}

// TestVerdicts: cancelling, resolving and compensating.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		before *Operation
		want   State
		wish   bool
		err    error
	}{
		"before anything": {at(t), Cancelled, false, nil}, "after a refusal": {at(t, Refused), Cancelled, false, nil}, "while one is open": {at(t, Open), Attempting, true, nil},
		"uncertain": {at(t, NoAnswer), Uncertain, true, nil}, "succeeded": {at(t, Effective), 0, false, ErrDecided},
	} {
		o, err := c.before.Cancel("x")
		if !errors.Is(err, c.err) || err == nil && (o.State != c.want || o.CancelWished != c.wish) {
			t.Errorf("cancelling %s: %+v, %v", name, o, err)
		}
	}
	wished, err := at(t, Open).Cancel("x")
	if err != nil {
		t.Fatal(err)
	}
	if wished, err = wished.Report(1, Answer{Known: NotSent}); err != nil || wished.State != Cancelled {
		t.Errorf("the wish of one that was never sent: %v, %v", wished.State, err)
	}
	for name, c := range map[string]struct {
		before  *Operation
		verdict State
		reason  string
		want    error
	}{
		"uncertain": {at(t, NoAnswer), Succeeded, "seen", nil}, "no reason": {at(t, NoAnswer), Failed, "", ErrInvalid}, "no verdict": {at(t, NoAnswer), Pending, "x", ErrInvalid},
		"at work": {at(t, Open), Failed, "x", ErrUndecided}, "decided": {at(t, Effective), Failed, "x", ErrDecided},
	} {
		if _, err := c.before.Resolve(c.verdict, nil, c.reason); !errors.Is(err, c.want) {
			t.Errorf("resolving %s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		before *Operation
		want   error
	}{"pending": {at(t), ErrUndecided}, "at work": {at(t, Open), ErrUndecided}, "uncertain": {at(t, NoAnswer), ErrUndecided}, "succeeded": {at(t, Effective), nil}} {
		if err := c.before.MayCompensate(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("compensating %s: %v", name, err)
		}
	}
}

// TestFindings: what an inquiry decides, and what it does not.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		before  *Operation
		finding Finding
		want    State
		err     error
	}{
		"found": {at(t, NoAnswer), Found, Succeeded, nil}, "refused and closed": {at(t, NoAnswer), Closed, Failed, nil}, "past its instant": {at(t, NoAnswer), PastInstant, Failed, nil},
		"not observed": {at(t, NoAnswer), NotObserved, Uncertain, nil}, "found again": {at(t, Effective), Found, Succeeded, nil}, "none": {at(t, NoAnswer), 0, 0, ErrInvalid},
		"closed after a success":            {at(t, Effective), Closed, Succeeded, ErrDecided},
		"past an instant that none carried": {at(t, NoAnswer), PastInstant, 0, ErrInvalid},
	} {
		if name == "past its instant" {
			c.before.NotAfter = time.Unix(1, 0)
		}
		o, err := c.before.Inquired(c.finding, []byte("r"), "asked")
		if !errors.Is(err, c.err) || o != nil && o.State != c.want || (o == nil) != (c.want == 0) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

// TestGivingUp: only while no attempt can have had an effect.
func TestGivingUp(t *testing.T) {
	for name, c := range map[string]struct {
		before *Operation
		want   error
	}{"pending": {at(t), nil}, "refused": {at(t, Refused), nil}, "at work": {at(t, Open), ErrUndecided}, "uncertain": {at(t, NoAnswer), ErrUndecided}, "decided": {at(t, Effective), ErrDecided}} {
		if o, err := c.before.GiveUp("no attempt is left"); !errors.Is(err, c.want) || err == nil && (o.State != Failed || o.Reason == "") {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}
