package tune

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// neighbours is how many TTLs shorter and longer than the recommended one a table shows, every other one of the candidates.
const neighbours = 3

// WriteText writes the recommendation, what it implies, and the TTLs around it.
func (p Plan) WriteText(w io.Writer) error {
	var b strings.Builder
	best := p.Points[p.Best]
	if p.Met {
		fmt.Fprintf(&b, "TTL %s\n\n", plain(best.TTL))
	} else {
		fmt.Fprintf(&b, "no TTL is within the bounds; the nearest, %s, %s\n\n", plain(best.TTL), best.Unfit)
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("margin", "%s: lease.Options{TTL: %s, Margin: %s}", plain(best.Margin), code(best.TTL), code(best.Margin))
	row("renewal interval", "%s to %s (the client's: a third of the TTL, up to a tenth of that less)", plain(tidy(best.IntervalMin)), plain(tidy(best.IntervalMost)))
	row("attempt timeout", "%s (the client's: a third of the TTL, less near the end)", plain(tidy(best.Attempt)))
	row("budget of a waiter", "%s with a reserve of %s: budget.Start(ctx, %s, budget.Reserve(%s))", plain(best.Budget), plain(best.Reserve), code(best.Budget), code(best.Reserve))
	row("losing a live lease", "%s within an hour, %s within a day (target %s)", probability(best.LossPerHour), probability(best.LossPerDay), probability(p.Inputs.Target))
	row("  a day, by cause", "outages %s, pauses %s, failing renewals %s", figure(best.ByOutages), figure(best.ByPauses), figure(best.ByFailures))
	row("false reclaims", "%s a day, of %s", figure(best.ReclaimsPerDay), sessions(p.Inputs.Sessions))
	row("renewals", "%s a second, of %s", figure(best.RenewalsPerSecond), sessions(p.Inputs.Sessions))
	row("blocked", "%s a day, each session: after crashes and losses", short(best.BlockedPerDay.Seconds()))
	row("cost", "%s a day", figure(best.CostPerDay))
	_ = t.Flush() // into memory
	b.WriteString("\nRecovery after a crash\n")
	writeRecovery(&b, best.Recovery)
	fmt.Fprintf(&b, "A TTL of %s does not mean recovery in %s: half of all crashes are over after %s, 99 in 100 after %s.\n",
		plain(best.TTL), plain(best.TTL), short(best.Recovery.Total.P50.Seconds()), short(best.Recovery.Total.P99.Seconds()))
	b.WriteString("\nOther TTLs\n")
	p.writeTable(&b)
	for text := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(text, " \n")); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return nil
}

func writeRecovery(w io.Writer, r Recovery) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "remaining TTL\twaking\tretries\tstart\ttotal\t")
	for _, line := range []struct {
		name string
		of   func(Part) time.Duration
	}{
		{"mean", func(p Part) time.Duration { return p.Mean }},
		{"p50", func(p Part) time.Duration { return p.P50 }},
		{"p99", func(p Part) time.Duration { return p.P99 }},
	} {
		for _, part := range []Part{r.Remaining, r.Waking, r.Retries, r.Start, r.Total} {
			fmt.Fprintf(t, "%s\t", short(line.of(part).Seconds()))
		}
		fmt.Fprintf(t, "  %s\n", line.name)
	}
	_ = t.Flush() // into memory
}

// shown are the indices of the points around the best one, every other one, and of the ends.
func (p Plan) shown() []int {
	var out []int
	for i := range p.Points {
		d := i - p.Best
		if slices.Contains(p.Also, p.Points[i].TTL) || i == 0 || i == len(p.Points)-1 || d%2 == 0 && d >= -2*neighbours && d <= 2*neighbours {
			out = append(out, i)
		}
	}
	return out
}

func (p Plan) writeTable(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "TTL\tmargin\tP(loss) a day\trecovery p50\tp99\trenewals/s\tcost a day\t")
	for _, i := range p.shown() {
		q := p.Points[i]
		mark := ""
		switch {
		case i == p.Best && p.Met:
			mark = "recommended"
		case q.Unfit != "":
			mark = "out of bounds"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", plain(q.TTL), plain(q.Margin), probability(q.LossPerDay),
			short(q.Recovery.Total.P50.Seconds()), short(q.Recovery.Total.P99.Seconds()), figure(q.RenewalsPerSecond), figure(q.CostPerDay), mark)
	}
	_ = t.Flush() // into memory
}

// figure writes a number with three figures, without an exponent where people would not use one.
func figure(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.001 || x >= 1e6:
		return scientific(x)
	case x >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func probability(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 1e-12:
		return "under 1e-12"
	case x < 0.00001:
		return scientific(x)
	case x > 0.9999:
		return "over 99.99%"
	}
	return strconv.FormatFloat(x*100, 'g', 3, 64) + "%"
}

// scientific writes 2.3e-7 and 1e-7.
func scientific(x float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', 1, 64), "e")
	n, _ := strconv.Atoi(exponent) // it is a number: FormatFloat wrote it
	return fmt.Sprintf("%se%d", strings.TrimSuffix(mantissa, ".0"), n)
}

func sessions(n int) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}

// often writes the time between two faults: in days where it is many.
func often(every time.Duration) string {
	const day = 24 * time.Hour
	if every >= 2*day && every%day == 0 {
		return fmt.Sprintf("%d days", every/day)
	}
	return short(every.Seconds())
}

// tidy drops what nobody reads in a duration.
func tidy(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// code writes a duration as Go source.
func code(d time.Duration) string {
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "time.Hour"}, {time.Minute, "time.Minute"}, {time.Second, "time.Second"}, {time.Millisecond, "time.Millisecond"}} {
		if d%u.d == 0 {
			return fmt.Sprintf("%d*%s", d/u.d, u.name)
		}
	}
	return fmt.Sprintf("%d*time.Nanosecond", d)
}
