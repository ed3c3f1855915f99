package tune

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"
)

// Dist is a distribution of durations, in seconds. Both methods are pure and safe for concurrent use.
type Dist interface {
	// Over is the probability of more than x seconds. It never rises with x.
	Over(x float64) float64
	// Upper is the duration in seconds that is exceeded with probability q, 0 < q <= 1.
	Upper(q float64) float64
	// String says in words what it is.
	String() string
}

// MaxBuckets bounds a histogram.
const MaxBuckets = 1000

// DefaultTail is the index of the Pareto tail beyond the last bucket that says anything.
const DefaultTail = 2.0

// longest is where every tail ends: nothing here lasts longer than a day.
const longest = 24 * 60 * 60.0

// Bucket says how many durations were at most LE, as in Prometheus: counts add up from bucket to bucket.
type Bucket struct {
	LE    float64 // in seconds; +Inf in the last
	Count float64
}

// Histogram is an empirical distribution: straight lines between the bounds of its buckets, and a Pareto tail beyond
// the highest finite bound that holds anything. The tail has at least the weight of half a measurement: what was not seen
// among n is not impossible, it is rarer than one in n.
type Histogram struct {
	buckets []Bucket  // finite bounds, the last of them the start of the tail
	over    []float64 // probability of more than the bound
	total   float64
	tail    float64
}

// NewHistogram makes a distribution of cumulative buckets in rising order of LE. tail is the index of the Pareto tail; 0
// stands for [DefaultTail]. It returns an [*InputError] if the buckets are none, too many, or in disorder.
func NewHistogram(what string, buckets []Bucket, tail float64) (*Histogram, error) {
	if tail == 0 {
		tail = DefaultTail
	}
	if math.IsNaN(tail) || tail < 0.5 || tail > 10 {
		return nil, wrongf(what, "the index of the tail is %v; want 0.5 (heavy) to 10 (light)", tail)
	}
	if len(buckets) == 0 || len(buckets) > MaxBuckets {
		return nil, wrongf(what, "has %d buckets; want 1 to %d", len(buckets), MaxBuckets)
	}
	if err := checkBuckets(what, buckets); err != nil {
		return nil, err
	}
	total := buckets[len(buckets)-1].Count
	h := &Histogram{total: total, tail: tail}
	for _, b := range buckets {
		if math.IsInf(b.LE, 1) {
			break
		}
		h.buckets = append(h.buckets, b)
		if b.Count == total {
			break
		}
	}
	if len(h.buckets) == 0 || h.buckets[len(h.buckets)-1].Count == 0 {
		return nil, wrongf(what, "all %v measurements are beyond the last finite bucket; choose buckets that reach further", total)
	}
	for _, b := range h.buckets {
		h.over = append(h.over, max(1-b.Count/total, 0.5/total))
	}
	return h, nil
}

func checkBuckets(what string, buckets []Bucket) error {
	for i, b := range buckets {
		switch {
		case math.IsNaN(b.LE) || b.LE < 0 || math.IsNaN(b.Count) || math.IsInf(b.Count, 0) || b.Count < 0:
			return wrongf(what, "bucket %d is le %v, count %v; want numbers of at least 0", i+1, b.LE, b.Count)
		case i > 0 && b.LE <= buckets[i-1].LE:
			return wrongf(what, "bucket %d is le %v after le %v; bounds must rise", i+1, b.LE, buckets[i-1].LE)
		case i > 0 && b.Count < buckets[i-1].Count:
			return wrongf(what, "bucket %d counts %v after %v; counts are cumulative, as in Prometheus: each includes those before it", i+1, b.Count, buckets[i-1].Count)
		}
	}
	if total := buckets[len(buckets)-1].Count; total < 1 {
		return wrongf(what, "holds no measurement")
	}
	return nil
}

// Count is how many measurements it rests on.
func (h *Histogram) Count() float64 { return h.total }

// Buckets returns the finite buckets that say anything.
func (h *Histogram) Buckets() []Bucket { return append([]Bucket(nil), h.buckets...) }

// Over implements [Dist].
func (h *Histogram) Over(x float64) float64 {
	last := len(h.buckets) - 1
	switch {
	case x < 0:
		return 1
	case x >= longest:
		return 0
	case x >= h.buckets[last].LE:
		return h.over[last] * math.Pow(h.start()/max(x, h.start()), h.tail)
	}
	i := sort.Search(last, func(i int) bool { return h.buckets[i].LE >= x })
	if h.buckets[i].LE == x {
		return h.over[i]
	}
	low, above := h.below(i)
	return above + (h.over[i]-above)*(x-low)/(h.buckets[i].LE-low)
}

// Upper implements [Dist].
func (h *Histogram) Upper(q float64) float64 {
	last := len(h.buckets) - 1
	if q < h.over[last] {
		return min(h.start()*math.Pow(h.over[last]/q, 1/h.tail), longest)
	}
	i := sort.Search(last, func(i int) bool { return h.over[i] <= q })
	low, above := h.below(i)
	if above <= h.over[i] {
		return low
	}
	return low + (h.buckets[i].LE-low)*(above-min(q, above))/(above-h.over[i])
}

// start is where the tail begins: not at 0, where a power law has no beginning.
func (h *Histogram) start() float64 { return max(h.buckets[len(h.buckets)-1].LE, 1e-6) }

// below is the bound under bucket i and the probability of more than it.
func (h *Histogram) below(i int) (bound, over float64) {
	if i == 0 {
		return 0, 1
	}
	return h.buckets[i-1].LE, h.over[i-1]
}

func (h *Histogram) String() string {
	return fmt.Sprintf("%.0f measured, p50 %s, p99 %s; beyond %s a Pareto tail of index %g with weight %.2g", h.total, short(h.Upper(0.5)),
		short(h.Upper(0.01)), short(h.start()), h.tail, h.over[len(h.over)-1])
}

// lognormal is given by its median and its 99th percentile.
type lognormal struct{ median, sigma float64 }

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// NewLognormal returns the lognormal distribution with this median and 99th percentile. It returns an [*InputError] unless 0 < median < p99.
func NewLognormal(what string, median, p99 time.Duration) (Dist, error) {
	if median <= 0 || p99 <= median || p99 > 24*time.Hour {
		return nil, wrongf(what, "median %v and 99th percentile %v; want 0 < median < 99th percentile <= 24h", median, p99)
	}
	return lognormal{median.Seconds(), math.Log(p99.Seconds()/median.Seconds()) / z99}, nil
}

func (l lognormal) Over(x float64) float64 {
	switch {
	case x <= 0:
		return 1
	case x >= longest:
		return 0
	}
	return 0.5 * math.Erfc(math.Log(x/l.median)/(l.sigma*math.Sqrt2))
}

func (l lognormal) Upper(q float64) float64 {
	if q >= 1 {
		return 0
	}
	return min(l.median*math.Exp(l.sigma*math.Sqrt2*math.Erfcinv(2*q)), longest)
}

func (l lognormal) String() string {
	return fmt.Sprintf("assumed: lognormal, p50 %s, p99 %s", short(l.median), short(l.Upper(0.01)))
}

// beyond is d, given that it is more than floor: for simulations, which cannot wait for what is rare.
type beyond struct {
	d     Dist
	floor float64
	share float64 // of d that is more than floor
}

func above(d Dist, floor float64) beyond { return beyond{d, floor, d.Over(floor)} }

func (b beyond) Over(x float64) float64 {
	if x <= b.floor {
		return 1
	}
	return b.d.Over(x) / b.share
}

func (b beyond) Upper(q float64) float64 { return max(b.d.Upper(q*b.share), b.floor) }

func (b beyond) String() string { return fmt.Sprintf("%v, of those over %s", b.d, short(b.floor)) }

// short writes seconds with the figures that matter: three, or whole seconds and minutes.
func short(s float64) string {
	d := seconds(s)
	switch {
	case d >= time.Hour:
		return plain(d.Round(time.Minute))
	case d >= time.Minute:
		return plain(d.Round(time.Second))
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		switch {
		case d >= 100*unit:
			return d.Round(unit).String()
		case d >= 10*unit:
			return d.Round(unit / 10).String()
		case d >= unit:
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// plain writes a duration without the units that are 0.
func plain(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// seconds is the duration of s seconds.
func seconds(s float64) time.Duration {
	return time.Duration(math.Round(min(max(s, 0), 1e9) * float64(time.Second)))
}
