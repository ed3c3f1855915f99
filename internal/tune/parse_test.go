package tune

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

const scrape = `# HELP go_gc_pauses_seconds Pauses.
# TYPE go_gc_pauses_seconds histogram
go_gc_pauses_seconds_bucket{le="0.001"} 7
go_gc_pauses_seconds_bucket{le="+Inf"} 9
go_gc_pauses_seconds_sum 0.02
go_gc_pauses_seconds_count 9
# TYPE renew_seconds histogram
renew_seconds_bucket{store="a",le="0.005",note="a \" brace } and , comma"} 90 1700000000000
renew_seconds_bucket{store="a",le="0.05",note="a \" brace } and , comma"} 99
renew_seconds_bucket{store="a",le="+Inf",note="a \" brace } and , comma"} 100 # {trace_id="x"} 0.06
renew_seconds_bucket{ le="0.005", store="b" } 1e1
renew_seconds_bucket{ le="0.05", store="b" } 20
renew_seconds_bucket{ le="+Inf", store="b" } 20
renew_ms_bucket{le="5"} 1
renew_ms_bucket{le="+Inf"} 2
up 1
`

func TestRead(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name, text, metric string
		want               []Bucket
		over               time.Duration
	}{
		{"JSON", `  {"buckets": [{"le_ms": 5, "count": 990}, {"le_ms": null, "count": 1000}], "over_ms": 3600000}`, "", []Bucket{{0.005, 990}, {inf, 1000}}, time.Hour},
		{"Prometheus, series added up", scrape, "renew_seconds", []Bucket{{0.005, 100}, {0.05, 119}, {inf, 120}}, 0},
		{"with _bucket", scrape, "go_gc_pauses_seconds_bucket", []Bucket{{0.001, 7}, {inf, 9}}, 0},
		{"in milliseconds", scrape, "renew_ms", []Bucket{{0.005, 1}, {inf, 2}}, 0},
		{"one alone", "x_bucket{le=\"1\"} 3", "", []Bucket{{1, 3}}, 0},
		{"Windows", "x_bucket{le=\"1\"} 3\r\nx_bucket{le=\"2\"} 4\r\n", "", []Bucket{{1, 3}, {2, 4}}, 0},
	} {
		got, err := Read("file", strings.NewReader(c.text), c.metric)
		if err != nil || len(got.Buckets) != len(c.want) || got.Over != c.over {
			t.Errorf("%s: %+v, %v", c.name, got, err)
			continue
		}
		for i := range c.want {
			if got.Buckets[i] != c.want[i] {
				t.Errorf("%s: bucket %d is %v, want %v", c.name, i, got.Buckets[i], c.want[i])
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, metric, says string }{
		"nothing":               {"", "", "empty"},
		"two of them":           {`{"buckets": [{"le_ms": 5, "count": 990}]} {"buckets": []}`, "", "alone"},
		"JSON has no names":     {`{"buckets": [{"le_ms": 5, "count": 990}]}`, "renew_seconds", "no name"},
		"spaces":                {" \n\t", "", "empty"},
		"neither":               {"hello\n", "", "neither JSON"},
		"several histograms":    {scrape, "", "go_gc_pauses_seconds, renew_ms, renew_seconds"},
		"another name":          {scrape, "nothing_seconds", "nothing_seconds"},
		"broken JSON":           {`{"buckets": [`, "", "want {"},
		"unknown field":         {`{"bucket": []}`, "", "unknown field"},
		"no buckets":            {`{"buckets": []}`, "", "0 buckets"},
		"not cumulative":        {`{"buckets": [{"le_ms":1,"count":5},{"le_ms":2,"count":3}]}`, "", "cumulative"},
		"bounds fall":           {`{"buckets": [{"le_ms":2,"count":5},{"le_ms":1,"count":6}]}`, "", "must rise"},
		"negative":              {`{"buckets": [{"le_ms":2,"count":-5}]}`, "", "at least 0"},
		"no measurement":        {`{"buckets": [{"le_ms":2,"count":0}]}`, "", "no measurement"},
		"over negative":         {`{"buckets": [{"le_ms":2,"count":1}], "over_ms": -1}`, "", "over_ms"},
		"no le":                 {`x_bucket{a="b"} 3`, "", "line 1: a bucket without the label le"},
		"no count":              {`x_bucket{le="1"}`, "", "without a count"},
		"no number":             {`x_bucket{le="one"} 3`, "", "want numbers"},
		"not a number":          {`x_bucket{le="NaN"} 3`, "", "not a number"},
		"count not a number":    {`x_bucket{le="1"} NaN`, "", "at least 0"},
		"open quotes":           {`x_bucket{le="1} 3`, "", "quotes"},
		"no quotes":             {`x_bucket{le=1} 3`, "", "name="},
		"twice":                 {"x_bucket{le=\"1\"} 3\nx_bucket{le=\"1\"} 4", "", "line 2"},
		"different series":      {"x_bucket{le=\"1\",a=\"1\"} 3\nx_bucket{le=\"2\",a=\"2\"} 4", "", "different buckets"},
		"a long line":           {"x" + strings.Repeat(" ", maxLine+1), "", "longer than 64 KiB"},
		"more than a histogram": {manyBuckets(MaxBuckets + 1), "", "more than 1000"},
	} {
		_, err := Read("some.txt", strings.NewReader(c.text), c.metric)
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "some.txt: ") {
			t.Errorf("%s: %v, want something with %q", name, err, c.says)
		}
	}
}

func manyBuckets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "x_bucket{le=\"%d\"} 3\n", i)
	}
	return b.String()
}

// TestReadIsBounded: a file without an end is not read to its end.
func TestReadIsBounded(t *testing.T) {
	if _, err := Read("endless", endless{}, ""); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "longer than 16 MiB") {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
		if i%2 == 0 {
			p[i] = '#'
		}
	}
	return len(p), nil
}

// FuzzRead: whatever a file holds is a histogram that the model can take, or an input error.
func FuzzRead(f *testing.F) {
	f.Add(scrape, "renew_seconds")
	f.Add(`{"buckets": [{"le_ms": 5, "count": 990}, {"le_ms": null, "count": 1000}], "over_ms": 3600000}`, "")
	f.Add("x_bucket{le=\"-1\"} 3\nx_bucket{le=\"0\"} 4", "x")
	f.Fuzz(func(t *testing.T, text, metric string) {
		m, err := Read("fuzz", strings.NewReader(text), metric)
		if err == nil {
			var h *Histogram
			if h, err = NewHistogram("fuzz", m.Buckets, 0); err == nil {
				checkDist(t, h)
			}
		}
		if err != nil && !errors.Is(err, ErrInput) {
			t.Fatalf("%v", err)
		}
	})
}

// checkDist fails unless d is a distribution whose two methods agree.
func checkDist(t *testing.T, d Dist) {
	t.Helper()
	last := math.Inf(1)
	for _, q := range []float64{1e-12, 1e-6, 0.001, 0.01, 0.1, 0.5, 0.9, 0.999, 1} {
		x := d.Upper(q)
		if math.IsNaN(x) || x < 0 || x > last || x > longest {
			t.Fatalf("%v: Upper(%v) is %v, after %v", d, q, x, last)
		}
		last = x
		if over := d.Over(x * (1 + 1e-9)); math.IsNaN(over) || over > q*(1+1e-6) || over < 0 {
			t.Fatalf("%v: Upper(%v) is %v, but more than it has the probability %v", d, q, x, over)
		}
	}
}
