package budget

import (
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
)

// Kind is what an [Entry] is about.
type Kind string

// The kinds of entries.
const (
	KindAttempt    Kind = "attempt"
	KindPause      Kind = "pause"       // back-off, or what the other side has asked for
	KindNotStarted Kind = "not started" // it did not fit, or was not to be repeated here
	KindPart       Kind = "part"        // of the budget, given to a dependency
)

// Entry is one thing that a budget was spent on, or that it had no time for.
type Entry struct {
	Kind    Kind
	Name    string
	At      time.Duration // since the budget began
	Took    time.Duration
	Allowed time.Duration // at most
	Err     error         // how it ended; nil: well
}

// Explanation is where the time of a budget went.
type Explanation struct {
	Name                 string
	Total, Reserve, Left time.Duration // Left is before the reserve
	Spent                time.Duration
	Slept                time.Duration // by the machine, since the budget began
	Entries              []Entry       // in the order of their ends
	Dropped              int           // entries beyond the 256 that are kept
}

func (b *Budget) note(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.entries) == maxEntries {
		b.dropped++
		return
	}
	b.entries = append(b.entries, e)
}

// Explain says where the time went so far. The result is the caller's.
func (b *Budget) Explain() Explanation {
	b.mu.Lock()
	defer b.mu.Unlock()
	spent := b.spent() // before it is asked for what was slept
	return Explanation{
		Slept: time.Duration(b.asleep.slept.Load()), Name: b.name, Total: b.total, Reserve: b.reserve, Left: b.Remaining(), Spent: min(spent, b.total),
		Entries: append([]Entry(nil), b.entries...), Dropped: b.dropped,
	}
}

// String is a table, one line an entry.
func (e Explanation) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %v of %v spent, %v left before the reserve of %v\n", e.Name, short(e.Spent), e.Total, short(e.Left), e.Reserve)
	if e.Slept > 0 {
		fmt.Fprintf(&out, "  the machine slept for %v\n", short(e.Slept))
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, x := range e.Entries {
		fmt.Fprintf(w, "  at %v\t%s\t%s\t%s\t%s\n", short(x.At), x.Kind, orDash(x.Name), x.span(), x.outcome())
	}
	_ = w.Flush() // a strings.Builder takes everything
	if e.Dropped > 0 {
		fmt.Fprintf(&out, "  and %d more\n", e.Dropped)
	}
	return out.String()
}

func (x Entry) span() string {
	if x.Kind == KindNotStarted {
		return fmt.Sprintf("%v left", short(x.Allowed))
	}
	return fmt.Sprintf("%v of %v", short(x.Took), short(x.Allowed))
}

func (x Entry) outcome() string {
	if x.Err == nil {
		return "ok"
	}
	return x.Err.Error()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// short drops what nobody reads.
func short(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// LogValue is the explanation as attributes of a log line.
func (e Explanation) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("name", e.Name), slog.Duration("total", e.Total), slog.Duration("reserve", e.Reserve), slog.Duration("spent", e.Spent), slog.Duration("left", e.Left),
	}
	if e.Slept > 0 {
		attrs = append(attrs, slog.Duration("slept", e.Slept))
	}
	for i, x := range e.Entries {
		attrs = append(attrs, slog.Group(fmt.Sprintf("entry_%d", i+1), slog.String("kind", string(x.Kind)), slog.String("name", x.Name), slog.Duration("at", x.At),
			slog.Duration("took", x.Took), slog.Duration("allowed", x.Allowed), slog.String("outcome", x.outcome())))
	}
	if e.Dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", e.Dropped))
	}
	return slog.GroupValue(attrs...)
}
