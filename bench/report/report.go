// Package report is what a benchmark leaves behind: tables, targets and the machine, as JSON that is kept, as text for a
// terminal and as the page docs/performance.md. Every figure keeps the rounds that it came from.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/bench/stats"
)

// Report is one benchmark's result.
type Report struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Method   string   `json:"method"` // what was run, for the reader who wants to doubt it
	Taken    string   `json:"taken"`  // the day, as 2026-12-01
	Machine  Machine  `json:"machine"`
	Settings Settings `json:"settings"`
	Tables   []Table  `json:"tables"`
	Targets  []Target `json:"targets,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Machine says where the figures come from, without a name.
type Machine struct {
	Processors  int     `json:"processors"`
	Processor   string  `json:"processor,omitempty"`
	System      string  `json:"system"`
	FileSystem  string  `json:"file_system"`
	Go          string  `json:"go"`
	SQLite      string  `json:"sqlite"`
	PostgreSQL  string  `json:"postgresql,omitempty"` // of the benchmarks that run one
	Driver      string  `json:"driver"`
	FsyncMicros float64 `json:"fsync_us"` // median of 4 KiB write + fsync, just before the benchmark
	// Others is the share of the processors' time, 0 to 1, that went to other programs meanwhile; absent where that cannot be read.
	Others *float64 `json:"others,omitempty"`
}

// Settings say how long it ran.
type Settings struct {
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"` // of each measurement within a round
	Quick   bool    `json:"quick"`   // too short to mean anything
}

// Table has a label and one cell per column in each row.
type Table struct {
	Title   string   `json:"title"`
	Label   string   `json:"label"` // heading of the labels
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
	Chart   bool     `json:"chart,omitempty"` // it is drawn, too
}

// AddTable adds a table with a row for each name and a column for each count of goroutines, each cell from its rounds.
func (r *Report) AddTable(title string, goroutines []int, names []string, rounds func(name string, goroutines int) []float64) {
	t := Table{Title: title, Label: "goroutines"}
	for _, g := range goroutines {
		t.Columns = append(t.Columns, strconv.Itoa(g))
	}
	for _, name := range names {
		row := Row{Label: name}
		for _, g := range goroutines {
			row.Cells = append(row.Cells, Rounds(rounds(name, g)))
		}
		t.Rows = append(t.Rows, row)
	}
	r.Tables = append(r.Tables, t)
}

// Row is one line of a table.
type Row struct {
	Label string `json:"label"`
	Cells []Cell `json:"cells"`
}

// Cell is a figure, a text, or nothing.
type Cell struct {
	Median *float64  `json:"median,omitempty"`
	Min    float64   `json:"min,omitempty"`
	Max    float64   `json:"max,omitempty"`
	Rounds []float64 `json:"rounds,omitempty"` // in the order in which they ran
	Text   string    `json:"text,omitempty"`
}

// Rounds is the figure that several rounds gave: their median, with the least and the most.
func Rounds(values []float64) Cell {
	if len(values) == 0 {
		return Cell{}
	}
	median := stats.Median(values)
	return Cell{Median: &median, Min: slices.Min(values), Max: slices.Max(values), Rounds: values}
}

// Number is a figure that was taken once, or over everything.
func Number(value float64) Cell { return Cell{Median: &value} }

// Text is a cell of words.
func Text(text string) Cell { return Cell{Text: text} }

// Target is what must be reached, and what was.
type Target struct {
	What  string  `json:"what"`
	Must  string  `json:"must"` // ">=", "<=" or "="
	Limit float64 `json:"limit"`
	Got   float64 `json:"got"`
	Unit  string  `json:"unit,omitempty"`
	// Band is the least and the most that single rounds gave, where Got is their median.
	Band []float64 `json:"band,omitempty"`
}

// Reached reports whether the target was reached. A relation that is not known is never reached.
func (t Target) Reached() bool {
	switch t.Must {
	case ">=":
		return t.Got >= t.Limit
	case "<=":
		return t.Got <= t.Limit
	case "=":
		return t.Got == t.Limit
	}
	return false
}

// AtLeast is a target for the median of rounds.
func AtLeast(what string, limit float64, unit string, rounds []float64) Target {
	return overRounds(what, ">=", limit, unit, rounds)
}

// AtMost is a target for the median of rounds.
func AtMost(what string, limit float64, unit string, rounds []float64) Target {
	return overRounds(what, "<=", limit, unit, rounds)
}

func overRounds(what, must string, limit float64, unit string, rounds []float64) Target {
	t := Target{What: what, Must: must, Limit: limit, Unit: unit, Got: stats.Median(rounds)}
	if len(rounds) > 1 {
		t.Band = []float64{slices.Min(rounds), slices.Max(rounds)}
	}
	return t
}

// Write writes the report to folder/NAME.json, and its picture beside it, and returns the path.
func (r *Report) Write(folder string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("report %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(folder, r.Name+".json")
	return path, errors.Join(os.WriteFile(path, append(text, '\n'), 0o644), r.WriteChart(folder))
}

// ReadAll reads the named reports of a folder in that order. One that is not there is an error: a page without
// it would read as if it had never been asked for.
func ReadAll(folder string, names []string) ([]*Report, error) {
	reports := make([]*Report, 0, len(names))
	for _, name := range names {
		path := filepath.Join(folder, name+".json")
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w; take it with: go run . --only %s --out %s", err, name, folder)
		}
		if err != nil {
			return nil, err
		}
		r := new(Report)
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if r.Name != name {
			return nil, fmt.Errorf("%s holds the report %q", path, r.Name)
		}
		reports = append(reports, r)
	}
	return reports, nil
}
