package budget

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// parser is ParseMillis, or a twin of it.
type parser func(text string, present bool) (Asked, time.Duration, error)

// parses holds a parser to what each text means: absent, expired and positive are three things, and garbage is none of them.
func parses(parse parser) error {
	year := maxTotal
	var wrong []error
	for _, c := range []struct {
		text string
		want Asked // 0: an error matching ErrInvalid
		wait time.Duration
	}{
		{"", 0, 0}, {"0", Expired, 0}, {"-0", Expired, 0}, {"000", Expired, 0}, {"-5", Expired, 0}, {"-99999999999999999999", Expired, 0},
		{"1", Positive, time.Millisecond}, {"1500", Positive, 1500 * time.Millisecond}, {"007", Positive, 7 * time.Millisecond},
		{"99999999999", Positive, year}, {"9223372036854775807", Positive, year}, {"9223372036854775808", Positive, year}, {strings.Repeat("9", maxHeader), Positive, year},
		{strings.Repeat("9", maxHeader+1), 0, 0}, {strings.Repeat("1", 1<<20), 0, 0}, {"+5", 0, 0}, {" 5", 0, 0}, {"5 ", 0, 0}, {"5\n", 0, 0}, {"--5", 0, 0}, {"-", 0, 0}, {"5-", 0, 0}, {"1e3", 0, 0},
		{"1.5", 0, 0}, {"1_000", 0, 0}, {"0x10", 0, 0}, {"5ms", 0, 0}, {"5,6", 0, 0}, {"٥", 0, 0}, {"５", 0, 0}, {"\x005", 0, 0}, {"NaN", 0, 0}, {"\xff", 0, 0},
	} {
		asked, wait, err := parse(c.text, true)
		if asked != c.want || wait != c.wait || (c.want == 0) != errors.Is(err, ErrInvalid) || c.want != 0 && err != nil {
			wrong = append(wrong, errors.New(short40(c.text)), err)
		}
	}
	if asked, wait, err := parse("", false); asked != Absent || wait != 0 || err != nil {
		wrong = append(wrong, errors.New("absent"), err)
	}
	return errors.Join(wrong...)
}

func short40(text string) string { return "text " + text[:min(len(text), 40)] }

func TestParseMillis(t *testing.T) {
	if err := parses(ParseMillis); err != nil {
		t.Error(err)
	}
}

// TestConfusedParsersAreCaught: none of these passes [TestParseMillis].
func TestConfusedParsersAreCaught(t *testing.T) {
	for name, twin := range map[string]parser{
		"an expired caller waits for ever": func(text string, present bool) (Asked, time.Duration, error) {
			asked, wait, err := ParseMillis(text, present)
			if asked == Expired {
				asked = Absent
			}
			return asked, wait, err
		},
		"nothing is an expired caller": func(text string, present bool) (Asked, time.Duration, error) {
			if !present {
				return Expired, 0, nil
			}
			return ParseMillis(text, present)
		},
		"what is there and empty is absent": func(text string, present bool) (Asked, time.Duration, error) {
			return ParseMillis(text, present && text != "")
		},
		"garbage is absent": func(text string, present bool) (Asked, time.Duration, error) {
			asked, wait, err := ParseMillis(text, present)
			if asked == 0 {
				asked, err = Absent, nil
			}
			return asked, wait, err
		},
	} {
		if parses(twin) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

func FuzzParseMillis(f *testing.F) {
	for _, text := range []string{"", "0", "-5", "99999999999", "+5", "5 "} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, present bool) {
		asked, wait, err := ParseMillis(text, present)
		switch {
		case (err != nil) != (asked == 0), (asked == Positive) != (wait > 0), wait < 0 || wait > maxTotal, !present && asked != Absent, present && asked == Absent:
			t.Errorf("%q: %v, %v, %v", text, asked, wait, err)
		}
		if n := ParseAttempt(text); n < 0 || n > 1_000_000 {
			t.Errorf("%q: attempt %d", text, n)
		}
	})
}

func TestParseAttempt(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "7": 7, "1000000": 1_000_000, "1000001": 0, "0": 0, "-1": 0, "": 0, "+1": 0, " 1": 0, "1 ": 0, "٣": 0, "1_0": 0, "0x1": 0, "99999999999999999999": 0, "one": 0} {
		if got := ParseAttempt(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// TestOutgoing: what is left is rounded down and sent; less than a millisecond is not, and an ended context says why it ended.
func TestOutgoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if w, err := Outgoing(t.Context()); err != nil || w != (Wire{}) || w.Millis() != "" {
			t.Errorf("no deadline: %+v, %v", w, err)
		}
		for left, want := range map[time.Duration]string{time.Millisecond: "1", 2*time.Millisecond - 1: "1", 1500 * time.Microsecond: "1", time.Hour: "3600000"} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if w, err := Outgoing(ctx); err != nil || w.Millis() != want {
				t.Errorf("%v left: %q, %v", left, w.Millis(), err)
			}
			cancel()
		}
		for _, left := range []time.Duration{1, time.Millisecond - 1} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			var no *NoTimeError
			if _, err := Outgoing(ctx); !errors.As(err, &no) || no.Left != left || ClassOf(err) != NotSent {
				t.Errorf("%v left: %v", left, err)
			}
			cancel()
		}
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if _, err := Outgoing(ctx); !errors.Is(err, gone) || errors.Is(err, ErrNoTime) || ClassOf(err) != NotSent {
			t.Errorf("cancelled: %v", err)
		}
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		<-late.Done()
		if _, err := Outgoing(late); !errors.Is(err, context.DeadlineExceeded) || ClassOf(err) != NotSent {
			t.Errorf("over: %v", err)
		}
	})
}

// TestOutgoingOfAnAttempt: a request of a Do says which attempt it is, and does not ask for the reserve.
func TestOutgoingOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 10*time.Second, Reserve(time.Second))
		n := 0
		err := Do(b.Context(), Policy{Base: 1, Most: 1}, func(ctx context.Context) error {
			n++
			w, err := Outgoing(ctx)
			if err != nil || w.Attempt != n || w.Remaining > 9*time.Second || w.Remaining < 8*time.Second {
				t.Errorf("%+v, %v", w, err)
			}
			return failing(NotSent)
		})
		if n != 3 || !errors.Is(err, ErrAttempts) {
			t.Errorf("%d attempts: %v", n, err)
		}
	})
}
