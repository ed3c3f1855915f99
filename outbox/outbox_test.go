package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// TestText demands that an error's text is kept as far as it fits, and is text.
func TestText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"no", "no"}, {"a\x00b", "a�b"}, {"a\xff\xfeb", "a�b"}, {"line\nfeed", "line\nfeed"},
		{strings.Repeat("x", outbox.MaxError), strings.Repeat("x", outbox.MaxError)},
		{strings.Repeat("x", outbox.MaxError+1), strings.Repeat("x", outbox.MaxError-3) + "…"},
		{"a" + strings.Repeat("ü", outbox.MaxError/2), "a" + strings.Repeat("ü", (outbox.MaxError-4)/2) + "…"},
		{strings.Repeat("\xff", 10*outbox.MaxError), "�"},
	} {
		got := outbox.Text(c.in)
		if got != c.want {
			t.Errorf("of %.20q… %d bytes are kept, %.20q…; want %d", c.in, len(got), got, len(c.want))
		}
	}
}

// FuzzText demands that whatever is given, what is kept is text of at most MaxError bytes, and is kept as it is when it comes again.
func FuzzText(f *testing.F) {
	f.Add("no", 1)
	f.Add("a\xff\x00ü", 900)
	f.Fuzz(func(t *testing.T, part string, times int) {
		text := strings.Repeat(part, min(max(times, 1), 1000))
		got := outbox.Text(text)
		if len(got) > outbox.MaxError || !utf8.ValidString(got) || strings.Contains(got, "\x00") || outbox.Text(got) != got {
			t.Errorf("kept are %d bytes: %q", len(got), got)
		}
	})
}

// TestSinkErrors demands that what a sink says of an error is found, and the error below it too.
func TestSinkErrors(t *testing.T) {
	cause := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		err       error
		is, isNot error
	}{{outbox.Outage(cause), outbox.ErrOutage, outbox.ErrRefused}, {outbox.Refused(cause), outbox.ErrRefused, outbox.ErrOutage}} {
		err := fmt.Errorf("publishing: %w", c.err)
		if !errors.Is(err, c.is) || errors.Is(err, c.isNot) || !errors.Is(err, context.DeadlineExceeded) || c.err.Error() != cause.Error() {
			t.Errorf("%v: want it to match %q and its cause alone", err, c.is)
		}
	}
	if outbox.Outage(nil) != nil || outbox.Refused(nil) != nil {
		t.Error("no error is one")
	}
}

// TestErrors demands that each error matches its own kind alone, keeps its cause, and says what to do.
func TestErrors(t *testing.T) {
	id, cause := fence.ID{1}, errors.New("reset by peer")
	kinds := []error{outbox.ErrInvalid, outbox.ErrMismatch, outbox.ErrNotFound, outbox.ErrUnknown, outbox.ErrUnavailable, outbox.ErrOutage, outbox.ErrRefused}
	for _, c := range []struct {
		err, kind error
		says      string
	}{
		{&outbox.InvalidError{Field: "topic", Problem: "empty"}, outbox.ErrInvalid, "topic: empty"},
		{&outbox.MismatchError{ID: id, What: "key"}, outbox.ErrMismatch, "another key; nothing was changed"},
		{&outbox.NotFoundError{ID: id}, outbox.ErrNotFound, id.String()},
		{&outbox.UnknownError{Op: "claim", Err: cause}, outbox.ErrUnknown, "the same call again settles it"},
		{&outbox.UnavailableError{Op: "claim", Err: cause}, outbox.ErrUnavailable, "claim was not applied"},
	} {
		for _, kind := range kinds {
			if own := errors.Is(kind, c.kind); errors.Is(c.err, kind) != own {
				t.Errorf("%v matches %q: %v", c.err, kind, !own)
			}
		}
		if !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%q does not say %q", c.err, c.says)
		}
		if unknown := errors.Is(c.kind, outbox.ErrUnknown) || errors.Is(c.kind, outbox.ErrUnavailable); unknown != errors.Is(c.err, cause) {
			t.Errorf("%v has its cause: %v", c.err, !unknown)
		}
	}
}

// TestStrings demands texts for what is known and for what is not.
func TestStrings(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"pending": outbox.Pending, "delivered": outbox.Delivered, "dead": outbox.Dead, "State(0)": outbox.State(0), "State(4)": outbox.Dead + 1,
		"published": outbox.Published, "failed": outbox.Failed, "returned": outbox.Returned, "Outcome(0)": outbox.Outcome(0), "Outcome(4)": outbox.Returned + 1,
	} {
		if got.String() != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// TestLimits demands that what is just within the limits passes; what is beyond, the suite asks of every store.
func TestLimits(t *testing.T) {
	claim := outbox.ClaimRequest{Claim: fence.ID{1}, Limit: outbox.MaxBatch, Bytes: outbox.MaxBatchBytes, TTL: outbox.MaxTTL, MaxAttempts: outbox.MaxAttempts}
	least := outbox.ClaimRequest{Claim: fence.ID{1}, Limit: 1, Bytes: 1, TTL: outbox.MinTTL, MaxAttempts: 1}
	settle := outbox.SettleRequest{Claim: fence.ID{1}, Verdicts: []outbox.Verdict{{Position: -1, Outcome: outbox.Failed, RetryIn: outbox.MaxRetryIn, Dead: true}}}
	move := outbox.MoveRequest{IDs: make([]fence.ID, outbox.MaxList), From: 1, To: 1, Limit: outbox.MaxMove}
	prune := outbox.PruneRequest{Delivered: outbox.MinPruneAge, Dead: outbox.MinPruneAge, Limit: outbox.MaxMove}
	for what, err := range map[string]error{
		"the greatest claim": claim.Check(), "the least claim": least.Check(), "a settlement": settle.Check(), "a move": move.Check(), "a prune": prune.Check(),
		"an append": outbox.CheckAppend(most()), "the longest wait": outbox.CheckAwait(outbox.MaxTTL), "no wait": outbox.CheckAwait(0),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := outbox.CheckAwait(outbox.MaxTTL + time.Nanosecond); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("a longer wait: %v", err)
	}
}

// most are as many messages as one append takes, without ids.
func most() []outbox.Message {
	all := make([]outbox.Message, outbox.MaxAppend)
	for i := range all {
		all[i].Topic = "mail"
	}
	return all
}

// TestOutageFor: what a destination asks for survives wrapping, and a plain outage asks for nothing.
func TestOutageFor(t *testing.T) {
	cause := errors.New("too many")
	err := fmt.Errorf("posting: %w", outbox.OutageFor(cause, time.Minute))
	if !errors.Is(err, outbox.ErrOutage) || !errors.Is(err, cause) || outbox.RestOf(err) != time.Minute {
		t.Errorf("%v: %v", err, outbox.RestOf(err))
	}
	if outbox.RestOf(outbox.Outage(cause)) != 0 || outbox.RestOf(nil) != 0 || outbox.RestOf(outbox.OutageFor(cause, -1)) != 0 || outbox.OutageFor(nil, 1) != nil {
		t.Error("a rest that nobody has asked for")
	}
}
