package tune

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on a file: a scrape of a large process is a few MiB.
const (
	MaxFile = 16 << 20 // bytes
	maxLine = 64 << 10 // bytes
)

// Measured is a histogram as a file holds it.
type Measured struct {
	Name    string        // of the metric; empty for JSON
	Buckets []Bucket      // cumulative
	Over    time.Duration // the time in which it was measured, where the file says so; 0 otherwise
}

// Read reads a histogram: JSON if the first character is a brace, Prometheus text otherwise. In Prometheus text metric names the
// histogram, with or without _bucket; empty is allowed where there is one alone. The series of a histogram, one for each set of
// other labels, are added up. A metric whose name ends in _milliseconds or _ms is in milliseconds, any other in seconds.
//
// Read returns an [*InputError] that starts with what, if r is longer than [MaxFile], holds no such histogram, or one in disorder.
func Read(what string, r io.Reader, metric string) (Measured, error) {
	limited := &io.LimitedReader{R: r, N: MaxFile + 1}
	in := bufio.NewReaderSize(limited, maxLine)
	m, err := read(what, in, metric)
	if limited.N <= 0 {
		return Measured{}, wrongf(what, "longer than %d MiB", MaxFile>>20)
	}
	if err != nil {
		return Measured{}, err
	}
	return m, checkCount(what, m.Buckets)
}

func checkCount(what string, buckets []Bucket) error {
	if len(buckets) == 0 || len(buckets) > MaxBuckets {
		return wrongf(what, "%d buckets; want 1 to %d", len(buckets), MaxBuckets)
	}
	return checkBuckets(what, buckets)
}

func read(what string, in *bufio.Reader, metric string) (Measured, error) {
	for {
		b, err := in.Peek(1)
		switch {
		case errors.Is(err, io.EOF):
			return Measured{}, wrongf(what, "empty")
		case err != nil:
			return Measured{}, fmt.Errorf("%s: %w", what, err)
		case b[0] == '{':
			if metric != "" {
				return Measured{}, wrongf(what, "it is JSON, whose histogram has no name, and metric %q was asked for", metric)
			}
			return readJSON(what, in)
		case strings.IndexByte(" \t\r\n", b[0]) < 0:
			return readPrometheus(what, in, metric)
		}
		_, _ = in.Discard(1) // it has been peeked at
	}
}

// bucketJSON is a bucket in a file and in a report. A bound that is null, or missing, is infinite.
type bucketJSON struct {
	LE    *float64 `json:"le_ms"`
	Count float64  `json:"count"`
}

// histogramJSON is what Read takes and reports write.
type histogramJSON struct {
	Buckets []bucketJSON `json:"buckets"`
	OverMS  float64      `json:"over_ms,omitempty"`
}

func readJSON(what string, in io.Reader) (Measured, error) {
	var h histogramJSON
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return Measured{}, wrongf(what, `%v; want {"buckets": [{"le_ms": 5, "count": 990}, {"le_ms": null, "count": 1000}], "over_ms": 3600000}`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Measured{}, wrongf(what, "something follows the histogram; want one JSON object alone")
	}
	if math.IsNaN(h.OverMS) || h.OverMS < 0 || h.OverMS > 1e13 {
		return Measured{}, wrongf(what, "over_ms is %v; want 0 for unknown, or up to 1e13", h.OverMS)
	}
	m := Measured{Over: seconds(h.OverMS / 1000)}
	for _, b := range h.Buckets {
		le := math.Inf(1)
		if b.LE != nil {
			le = *b.LE / 1000
		}
		m.Buckets = append(m.Buckets, Bucket{LE: le, Count: b.Count})
	}
	return m, nil
}

func (m Measured) json() histogramJSON {
	h := histogramJSON{OverMS: float64(m.Over) / float64(time.Millisecond)}
	for _, b := range m.Buckets {
		out := bucketJSON{Count: b.Count}
		if !math.IsInf(b.LE, 1) {
			ms := math.Round(b.LE*1e9) / 1e6
			out.LE = &ms
		}
		h.Buckets = append(h.Buckets, out)
	}
	return h
}

// series is one line of buckets: the bounds and counts of a histogram for one set of other labels.
type series map[float64]float64

func readPrometheus(what string, in *bufio.Reader, metric string) (Measured, error) {
	metric = strings.TrimSuffix(metric, "_bucket")
	found := map[string]map[string]series{}
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return Measured{}, wrongf(what, "line %d is longer than %d KiB", number, maxLine>>10)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Measured{}, fmt.Errorf("%s: %w", what, err)
		}
		if wrong := addLine(found, strings.TrimSpace(string(line)), metric); wrong != nil {
			return Measured{}, wrongf(what, "line %d: %v", number, wrong)
		}
		if err != nil {
			break
		}
	}
	name, err := choose(what, found, metric)
	if err != nil {
		return Measured{}, err
	}
	buckets, err := sum(what, name, found[name])
	return Measured{Name: name, Buckets: buckets}, err
}

// addLine takes in a line that is a bucket of a histogram, and passes over all others.
func addLine(found map[string]map[string]series, line, metric string) error {
	name, rest, ok := strings.Cut(line, "{")
	base, bucket := strings.CutSuffix(name, "_bucket")
	if !ok || !bucket || strings.HasPrefix(line, "#") || metric != "" && base != metric {
		return nil
	}
	le, others, rest, err := labels(rest)
	if err != nil {
		return err
	}
	fields := strings.Fields(rest) // value, and perhaps a time or an exemplar
	if len(fields) == 0 {
		return errors.New("a bucket without a count")
	}
	bound, err1 := strconv.ParseFloat(le, 64)
	count, err2 := strconv.ParseFloat(fields[0], 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("le %q, count %q: want numbers", le, fields[0])
	}
	if strings.HasSuffix(base, "_ms") || strings.HasSuffix(base, "_milliseconds") {
		bound /= 1000
	}
	if found[base] == nil {
		found[base] = map[string]series{}
	}
	one := found[base][others]
	if one == nil {
		one = series{}
		found[base][others] = one
	}
	if _, twice := one[bound]; twice {
		return fmt.Errorf("%s has the bucket le=%q twice: one scrape a file", base, le)
	}
	if len(one) == MaxBuckets {
		return fmt.Errorf("%s has more than %d buckets", base, MaxBuckets)
	}
	one[bound] = count
	return nil
}

// labels reads labels up to the closing brace: the value of le, the others as one text, and what follows.
func labels(text string) (le, others, rest string, err error) {
	var other strings.Builder
	seen := false
	for {
		text = strings.TrimLeft(text, " \t,")
		if after, ok := strings.CutPrefix(text, "}"); ok {
			if !seen {
				return "", "", "", errors.New("a bucket without the label le")
			}
			return le, other.String(), after, nil
		}
		name, after, ok := strings.Cut(text, "=")
		after = strings.TrimLeft(after, " \t")
		if !ok || !strings.HasPrefix(after, `"`) {
			return "", "", "", errors.New(`labels that are not name="value"`)
		}
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return "", "", "", errors.New("a label whose quotes do not close")
		}
		text = after[len(quoted):]
		if strings.TrimSpace(name) == "le" {
			le, seen = quoted[1:len(quoted)-1], true
			continue
		}
		fmt.Fprintf(&other, "%s=%s,", strings.TrimSpace(name), quoted)
	}
}

// choose is the name of the histogram that was meant.
func choose(what string, found map[string]map[string]series, metric string) (string, error) {
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	switch {
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0 && metric != "":
		return "", wrongf(what, "no line %s_bucket{...le=\"...\"}; is %q the name of a histogram in this file?", metric, metric)
	case len(names) == 0:
		return "", wrongf(what, "neither JSON that starts with a brace nor Prometheus text with a histogram (lines NAME_bucket{...le=\"...\"} COUNT)")
	}
	const most = 20
	shown := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		shown += ", ..."
	}
	return "", wrongf(what, "holds %d histograms; say which is meant: %s", len(names), shown)
}

// sum adds up the series of a histogram, which must have the same bounds.
func sum(what, name string, all map[string]series) ([]Bucket, error) {
	total, first := series{}, true
	for _, one := range all {
		for le, count := range one {
			if _, ok := total[le]; !ok && !first {
				return nil, wrongf(what, "the series of %s have different buckets and cannot be added up", name)
			}
			total[le] += count
		}
		if len(one) != len(total) {
			return nil, wrongf(what, "the series of %s have different buckets and cannot be added up", name)
		}
		first = false
	}
	var buckets []Bucket
	for le, count := range total {
		if math.IsNaN(le) {
			return nil, wrongf(what, "%s has a bucket that is not a number", name)
		}
		buckets = append(buckets, Bucket{LE: max(le, 0), Count: count})
	}
	slices.SortFunc(buckets, func(a, b Bucket) int {
		if a.LE < b.LE {
			return -1
		}
		return 1
	})
	return buckets, nil
}
