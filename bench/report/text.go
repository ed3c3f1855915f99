package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Format writes a figure with as many digits as a benchmark can mean: three, with thousands set apart.
func Format(value float64) string {
	size := math.Abs(value)
	switch {
	case size >= 99.95:
		return thousands(strconv.FormatFloat(value, 'f', 0, 64))
	case value == math.Trunc(value):
		return strconv.FormatFloat(value, 'f', 0, 64)
	case size >= 9.995:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case size >= 0.0995:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	return strconv.FormatFloat(value, 'f', 3, 64)
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return sign + strings.Join(append([]string{digits}, groups...), ",")
}

// String is the figure with the band of its rounds, the text, or a dash.
func (c Cell) String() string {
	switch {
	case c.Text != "":
		return c.Text
	case c.Median == nil:
		return "-"
	case len(c.Rounds) > 1:
		return fmt.Sprintf("%s (%s..%s)", Format(*c.Median), Format(c.Min), Format(c.Max))
	}
	return Format(*c.Median)
}

// String says what was wanted and what was got.
func (t Target) String() string {
	band := ""
	if len(t.Band) == 2 {
		band = fmt.Sprintf(" (rounds %s..%s)", Format(t.Band[0]), Format(t.Band[1]))
	}
	return fmt.Sprintf("%s: want %s %s%s, got %s%s%s", t.What, t.Must, Format(t.Limit), t.Unit, Format(t.Got), t.Unit, band)
}

func (t Target) verdict() string {
	if t.Reached() {
		return "reached"
	}
	return "MISSED"
}

// String is one line about where the figures come from.
func (m Machine) String() string {
	processor := ""
	if m.Processor != "" {
		processor = " (" + m.Processor + ")"
	}
	others := ""
	if m.Others != nil {
		others = fmt.Sprintf("; other programs used %.0f %% of the processors meanwhile", 100**m.Others)
	}
	database := fmt.Sprintf("SQLite %s (%s)", m.SQLite, m.Driver)
	if m.PostgreSQL != "" {
		database = "PostgreSQL " + m.PostgreSQL
	}
	return fmt.Sprintf("%d processors%s, %s, %s, %s, %s, fsync of 4 KiB %s us%s",
		m.Processors, processor, m.System, m.FileSystem, m.Go, database, Format(m.FsyncMicros), others)
}

// String is one line about how long it ran.
func (s Settings) String() string {
	rounds := "rounds"
	if s.Rounds == 1 {
		rounds = "round"
	}
	text := fmt.Sprintf("%d %s, %s s each measurement", s.Rounds, rounds, Format(s.Seconds))
	if s.Quick {
		text += "; QUICK: too short to mean anything"
	}
	return text
}

// Print writes the report for a terminal.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n== %s: %s\n%s\n%s\n", r.Name, r.Title, r.Machine, r.Settings)
	for _, table := range r.Tables {
		fmt.Fprintf(&b, "\n%s\n", table.Title)
		table.print(&b)
	}
	if len(r.Targets) > 0 {
		b.WriteByte('\n')
	}
	for _, target := range r.Targets {
		fmt.Fprintf(&b, "%-8s %s\n", target.verdict(), target)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note     %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) grid() [][]string {
	grid := [][]string{append([]string{t.Label}, t.Columns...)}
	for _, row := range t.Rows {
		line := []string{row.Label}
		for _, cell := range row.Cells {
			line = append(line, cell.String())
		}
		grid = append(grid, line)
	}
	return grid
}

func (t Table) print(b *strings.Builder) {
	grid := t.grid()
	widths := make([]int, len(grid[0]))
	for _, line := range grid {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range grid {
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("  " + cell + space)
			} else {
				b.WriteString("  " + space + cell)
			}
		}
		b.WriteByte('\n')
	}
}
