//go:build unix

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/internal/tune"
)

// tuned is what the tests read of the JSON.
type tuned struct {
	WithinBounds bool `json:"within_bounds"`
	Recommended  struct {
		TTLMS       float64 `json:"ttl_ms"`
		MarginMS    float64 `json:"margin_ms"`
		LossPerDay  float64 `json:"loss_probability_day"`
		OutOfBounds string  `json:"out_of_bounds"`
	}
	Inputs struct {
		Renewals string
	}
	Sampled     map[string]json.RawMessage
	Interrupted bool
}

func tunedFrom(t *testing.T, text string) tuned {
	t.Helper()
	var got tuned
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return got
}

// TestTuneSamplesAStore: a sample of two seconds leaves nothing in the store, and its histogram can be given again.
func TestTuneSamplesAStore(t *testing.T) {
	w := newWorld(t)
	w.ok("migrate")
	got := tunedFrom(t, w.ok("tune", "--seconds", "2", "--every", "20ms", "--json"))
	if !got.WithinBounds || got.Recommended.TTLMS < 1000 || got.Recommended.MarginMS < 500 || got.Interrupted || !strings.Contains(got.Inputs.Renewals, "measured") {
		t.Errorf("%+v", got)
	}
	if out := w.ok("lease", "ls", "--all", "--json"); !strings.Contains(out, `"leases": []`) {
		t.Errorf("the sample left %s", out)
	}
	if short := tunedFrom(t, w.ok("tune", "--seconds", "2", "--json")); !strings.Contains(short.Inputs.Renewals, "measured") {
		t.Errorf("the shortest sample: %+v", short)
	}
	file := filepath.Join(w.dir, "renewals.json")
	if err := os.WriteFile(file, got.Sampled["renewals"], 0o600); err != nil {
		t.Fatal(err)
	}
	again := tunedFrom(t, w.ok("tune", "--renewals", file, "--json"))
	if again.Inputs.Renewals != got.Inputs.Renewals {
		t.Errorf("from the file %q, from the store %q", again.Inputs.Renewals, got.Inputs.Renewals)
	}
}

// TestTuneOnPostgres: the store's own bounds of a TTL are kept, and what is not there is said.
func TestTuneOnPostgres(t *testing.T) {
	w, _ := postgresWorld(t, testdb.Shared(t))
	got := tunedFrom(t, w.ok("tune", "--seconds", "2", "--every", "20ms", "--json"))
	if !got.WithinBounds || !strings.Contains(got.Inputs.Renewals, "measured") {
		t.Errorf("%+v", got)
	}
	w.onStore("postgres://nobody@127.0.0.1:1/nothing")
	if end := w.do("tune", "--seconds", "2"); end.code != exitNoStore {
		t.Errorf("no server: exit %d, %s", end.code, end.last())
	}
}

// TestTuningDocs holds the drawing and the report of docs/tuning.md to what the command prints.
func TestTuningDocs(t *testing.T) {
	const drawing, page = "../../docs/tune.svg", "../../docs/tuning.md"
	plan, err := tune.Recommend(tune.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var svg, text strings.Builder
	if err := errors.Join(plan.WriteSVG(&svg), plan.WriteText(&text)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(drawing, []byte(svg.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	drawn, err := os.ReadFile(drawing)
	if err != nil || string(drawn) != svg.String() {
		t.Errorf("docs/tune.svg is not what tenure tune draws (%v); run: go test ./cmd/tenure -run TestTuningDocs -update", err)
	}
	written, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(written), "```text\n"+text.String()+"```\n") {
		t.Errorf("docs/tuning.md does not show what tenure tune prints (%v), which is\n%s", err, text.String())
	}
}

// TestTuneIsInterrupted: Ctrl-C ends the sample, and what was measured is used.
func TestTuneIsInterrupted(t *testing.T) {
	w := newWorld(t)
	w.ok("migrate")
	p := w.start("tune", "--seconds", "600", "--every", "10ms", "--json")
	p.await("5s of 10m0s")
	p.signal(syscall.SIGINT)
	got := tunedFrom(t, p.rest())
	if end := p.wait(); end.code != 0 || !got.Interrupted || !strings.Contains(end.stderr, "interrupted after") {
		t.Errorf("exit %d, %+v\n%s", end.code, got, end.stderr)
	}
	p = w.start("tune", "--seconds", "600", "--every", "30s")
	p.await("sampling")
	p.signal(syscall.SIGINT)
	if end := p.wait(); end.code != exitInterrupted || !strings.Contains(end.last(), "interrupted") {
		t.Errorf("at once: exit %d\n%s", end.code, end.stderr)
	}
}

func TestTuneReadsFilesAndDraws(t *testing.T) {
	w := newWorld(t)
	metrics := filepath.Join(w.dir, "metrics.txt")
	text := "a_seconds_bucket{le=\"0.01\"} 90\na_seconds_bucket{le=\"+Inf\"} 100\nb_seconds_bucket{le=\"1\"} 60\nb_seconds_bucket{le=\"+Inf\"} 60\n"
	if err := os.WriteFile(metrics, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	svg := filepath.Join(w.dir, "tune.svg")
	out := w.ok("tune", "--renewals", metrics, "--metric", "a_seconds", "--pauses", metrics, "--pause-metric", "b_seconds", "--pauses-over", "24h",
		"--svg", svg, "--explain", "--ttl", "7s", "--target", "0.05", "--sessions", "9")
	for _, want := range []string{"TTL ", " 7s ", "100 measured", "60 measured", "one every 24m", "Assumed, and worth doubting", "of 9 sessions"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	drawn, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(drawn))
	alone := w.ok("tune", "--svg", "-")
	wellFormed(t, alone)
	if end := w.do("tune", "--json", "--svg", filepath.Join(w.dir, "nowhere", "tune.svg")); end.code != exitFailed || !strings.Contains(end.last(), "--svg") || !tunedFrom(t, end.stdout).WithinBounds {
		t.Errorf("a drawing that cannot be made took the report with it: exit %d, %q", end.code, end.stdout)
	}
	if !strings.HasPrefix(alone, "<svg ") {
		t.Errorf("--svg - printed %.40q first", alone)
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the drawing is no XML: %v", err)
		}
	}
}

func TestTuneExitCodes(t *testing.T) {
	w := newWorld(t)
	empty := filepath.Join(w.dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitFailed, "", []string{"--target", "1e-11", "--outage-every", "1h"}},
		{exitUsage, "target", []string{"--target", "1.5"}},
		{exitUsage, "--seconds", []string{"--seconds", "-3"}},
		{exitUsage, "--seconds", []string{"--seconds", "1"}},
		{exitUsage, "--seconds", []string{"--seconds", "9999"}},
		{exitUsage, "a renewal every", []string{"--seconds", "2", "--every", "1s", "--store", w.store}},
		{exitUsage, "choose one", []string{"--seconds", "5", "--renewals", empty}},
		{exitUsage, "empty", []string{"--renewals", empty}},
		{exitUsage, "is a directory", []string{"--renewals", w.dir}},
		{exitUsage, "no such file", []string{"--renewals", empty + "x"}},
		{exitUsage, "--metric", []string{"--metric", "a"}},
		{exitUsage, "--pauses", []string{"--pauses-over", "1h"}},
		{exitUsage, "standard input", []string{"--renewals", "-", "--pauses", "-"}},
		{exitUsage, "--tail", []string{"--tail", "0"}},
		{exitUsage, "--ttl", []string{"--ttl", "-1s"}},
		{exitUsage, "the margin", []string{"--ttl", "600ms"}},
		{exitUsage, "outage", []string{"--outage-median", "2m"}},
		{exitUsage, "--svg -", []string{"--svg", "-", "--json"}},
		{exitUsage, "--explain", []string{"--explain", "--json"}},
		{exitUsage, "--every", []string{"--every", "1s"}},
		{exitUsage, "sessions", []string{"--sessions", "0"}},
		{exitNoStore, "there is no store", []string{"--seconds", "2", "--store", "sqlite:" + empty + "y"}},
	} {
		if c.code == exitUsage && c.says == "a renewal every" {
			w.ok("migrate")
		}
		got := w.do(append([]string{"tune"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.last(), c.says) {
			t.Errorf("%q: exit %d, %q; want %d and %q", c.args, got.code, got.last(), c.code, c.says)
		}
	}
}

// TestTuneSimulates: the check of the model is printed, and agrees for the defaults.
func TestTuneSimulates(t *testing.T) {
	out := newWorld(t).ok("tune", "--simulate")
	if strings.Count(out, "agrees") != 4 || strings.Contains(out, "DIFFERS") {
		t.Error(out)
	}
}
