package report

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func sample() *Report {
	others := 0.04
	return &Report{
		Name: "sample", Title: "A sample", Method: "Nothing was run.", Taken: "2026-12-01",
		Machine:  Machine{Processors: 2, System: "linux/amd64", FileSystem: "ext4", Go: "go1.26", SQLite: "3.54.1", Driver: "modernc", FsyncMicros: 80, Others: &others},
		Settings: Settings{Rounds: 3, Seconds: 2},
		Tables: []Table{{Title: "Cycles per second", Label: "what", Columns: []string{"1", "64"}, Rows: []Row{
			{"group", []Cell{Rounds([]float64{40794, 39000, 41000}), Number(11.04)}},
			{"none", []Cell{{}, Text("not measured")}},
		}}},
		Targets: []Target{AtLeast("ratio", 10, "x", []float64{11, 9, 12}), AtMost("p99", 25, " ms", []float64{26})},
		Notes:   []string{"a note"},
	}
}

func TestFormat(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 1: "1", 0.0421: "0.042", 0.0999: "0.10", 1.048: "1.05", 9.999: "10.0", 12.34: "12.3", 99.99: "100", 999.6: "1,000",
		40794.4: "40,794", 1234567: "1,234,567", -1234: "-1,234", -0.5: "-0.50",
	} {
		if got := Format(value); got != want {
			t.Errorf("Format(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target Target
		want   bool
	}{
		{Target{Must: ">=", Limit: 10, Got: 10}, true},
		{Target{Must: ">=", Limit: 10, Got: 9.99}, false},
		{Target{Must: "<=", Limit: 1.25, Got: 1.25}, true},
		{Target{Must: "<=", Limit: 1.25, Got: 1.26}, false},
		{Target{Must: "=", Limit: 0, Got: 0}, true},
		{Target{Must: "=", Limit: 0, Got: 1}, false},
		{Target{Must: "", Limit: 0, Got: 0}, false},
	} {
		if got := c.target.Reached(); got != c.want {
			t.Errorf("%+v: reached %v, want %v", c.target, got, c.want)
		}
	}
	if target := AtLeast("ratio", 10, "x", []float64{9, 12, 11}); target.Got != 11 || target.Band[0] != 9 || target.Band[1] != 12 {
		t.Errorf("a target over rounds is %+v, want the median 11 in 9..12", target)
	}
}

func TestWriteAndRead(t *testing.T) {
	folder := t.TempDir()
	written := sample()
	path, err := written.Write(folder)
	if err != nil || filepath.Base(path) != "sample.json" {
		t.Fatalf("Write = %q, %v", path, err)
	}
	read, err := ReadAll(folder, []string{"sample"})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read[0], written) {
		t.Errorf("read %+v, wrote %+v", read[0], written)
	}
	if _, err := ReadAll(folder, []string{"sample", "other"}); err == nil || !strings.Contains(err.Error(), "--only other") {
		t.Errorf("a missing report gives %v, want an error that says how to take it", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "other.json"), []byte(`{"name":"other","figures":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAll(folder, []string{"other"}); err == nil {
		t.Error("a report with an unknown field was read")
	}
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	if err := sample().Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  group  40,794 (39,000..41,000)          11.0\n",
		"  none                         -  not measured\n",
		"reached  ratio: want >= 10x, got 11x (rounds 9..12)\n",
		"MISSED   p99: want <= 25 ms, got 26 ms\n",
		"note     a note\n",
		"other programs used 4 % of the processors meanwhile\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, b.String())
		}
	}
}

func TestPage(t *testing.T) {
	page, err := Page([]*Report{sample()})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| sample | ratio | >= 10x | 11x (9..12) | reached |\n",
		"| sample | p99 | <= 25 ms | 26 ms | MISSED |\n",
		"| what | 1 | 64 |\n|---|---:|---:|\n| group | 40,794 (39,000..41,000) | 11.0 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	quick := sample()
	quick.Settings.Quick = true
	if _, err := Page([]*Report{quick}); err == nil {
		t.Error("a quick run made a page")
	}
}
