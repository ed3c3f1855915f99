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
