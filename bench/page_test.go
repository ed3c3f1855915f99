package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-go/tenure/bench/report"
)

// TestPageIsUpToDate holds docs/performance.md and the pictures to results.
func TestPageIsUpToDate(t *testing.T) {
	reports, err := readResults(".")
	if err != nil {
		t.Fatal(err)
	}
	want, err := report.Page(reports)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		drawn, err := os.ReadFile(filepath.Join("results", r.ChartFile()))
		if r.Chart() == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || string(drawn) != r.Chart() {
			t.Errorf("%s is not what bench/results says; write it with: go run . --docs (%v)", r.ChartFile(), err)
		}
	}
	got, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/performance.md is not what bench/results says; write it with: go run . --docs")
	}
}
