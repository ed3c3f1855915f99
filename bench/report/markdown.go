package report

import (
	"fmt"
	"strings"
)

const pageHead = `<!-- Written by the bench module from bench/results; do not edit. cd bench && go run . --docs -->
# Performance

What was measured, how, and on what. Absolute figures belong to the machine that is named with them; **compare ratios**, whose two
sides ran beside each other, round after round, in one process. A figure is the median of the rounds, with the least and the most in brackets.

To repeat it: ` + "`make bench`" + `, or ` + "`cd bench && go run . --list`" + ` for one benchmark at a time. To renew this page, on a quiet machine:
` + "`cd bench && go run . --out results && go run . --docs`" + `.

The PostgreSQL parts start servers of their own, with fsync on, whose files are where temporary files are (TMPDIR), and where that is memory they show nothing.

What is not measured here: a loss of power, a network file system, a network between program and server, a server with more data than memory, other platforms than the one named.
`

const pageTail = `
## What was tried and did not help

All on PostgreSQL 15, two processors, a server and a load that share them. Not in the results above: these were trials, each beside what it was to better.

- **Two lanes of a kind in a session**, instead of one for acquires and one for releases. Measured for what it costs only, not for whether it keeps the rules: at 64 goroutines two acquire lanes took about 31 µs of the server a cycle, one lane about 21. It was the same with KEY SHARE on the session's row, where two holders make a multixact, and with an advisory lock in its place; so the lock is not what they cost, and smaller batches are the likely cause.
- **A rule on a view for releases**, in the place of a function: no clear gain.
- **Dropping the check that tokens rise**: 1 µs a cycle. It stays: it stands behind every path that writes tokens.
- **Leaving out ` + "`SET enable_seqscan`" + `** alone: within the noise. Without all of its SET clauses an acquire of 30 names takes 215 to 220 µs of the server instead of 255 to 270; every name, type and operator in it would have to be qualified, and the plans would have to be right without being told. Not done so far.
- **Two plain pipelined statements** in the place of the functions: 83 to 102 µs of the server, against 95 to 128. It needs rights on the tables, and then nothing holds a caller to the rules.

Where the time goes at 256 goroutines, by a profile of these trials: index look-ups are 37 % of the time of the two server processes; an acquire call has a fixed cost of 70 µs and a release call of 25, and a name in it adds 7 and 5; and a quarter of the processors is idle, because the acquire lane sends one batch after another.
`

// Page is docs/performance.md. It returns an error for a quick run's report: its figures mean nothing.
func Page(reports []*Report) (string, error) {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("\n## Targets\n\n| benchmark | what | wanted | got | |\n|---|---|---|---|---|\n")
	for _, r := range reports {
		if r.Settings.Quick {
			return "", fmt.Errorf("the report %s is of a quick run: take it again without --quick", r.Name)
		}
		for _, t := range r.Targets {
			fmt.Fprintf(&b, "| %s | %s | %s %s%s | %s | %s |\n", r.Name, t.What, t.Must, Format(t.Limit), t.Unit, t.got(), t.verdict())
		}
	}
	for _, r := range reports {
		r.section(&b)
	}
	b.WriteString(pageTail)
	return b.String(), nil
}

func (t Target) got() string {
	text := Format(t.Got) + t.Unit
	if len(t.Band) == 2 {
		text += fmt.Sprintf(" (%s..%s)", Format(t.Band[0]), Format(t.Band[1]))
	}
	return text
}

func (r *Report) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", r.Title, r.Method)
	if r.Chart() != "" {
		fmt.Fprintf(b, "\n![%s](../bench/results/%s)\n", r.Title, r.ChartFile())
	}
	for _, table := range r.Tables {
		fmt.Fprintf(b, "\n%s\n\n", table.Title)
		for i, line := range table.grid() {
			b.WriteString("| " + strings.Join(line, " | ") + " |\n")
			if i == 0 {
				b.WriteString("|---" + strings.Repeat("|---:", len(line)-1) + "|\n")
			}
		}
	}
	if len(r.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range r.Notes {
		b.WriteString("- " + note + "\n")
	}
	fmt.Fprintf(b, "\n`%s`, %s: %s. %s.\n", r.Name, r.Taken, r.Settings, r.Machine)
}
