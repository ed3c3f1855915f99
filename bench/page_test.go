package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPageIsUpToDate holds docs/performance.md to results.
func TestPageIsUpToDate(t *testing.T) {
	want, err := makePage(".")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/performance.md is not what bench/results says; write it with: go run . --docs")
	}
}
