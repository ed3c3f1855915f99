package tune

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

func plans(t *testing.T) map[string]Plan {
	t.Helper()
	out := map[string]Plan{}
	for name, change := range map[string]func(*Inputs){
		"defaults":      func(*Inputs) {},
		"shortest":      func(in *Inputs) { in.PauseEvery, in.OutageEvery, in.CrashEvery = 0, 0, time.Minute },
		"longest":       func(in *Inputs) { in.Target, in.Sessions, in.MaxRenewals = 1e-9, 4000, 100 },
		"none":          func(in *Inputs) { in.Target, in.OutageEvery = 1e-11, time.Hour },
		"free":          func(in *Inputs) { in.CostPerReclaim, in.CostPerSecond = 0, 0 },
		"never":         never,
		"huge":          func(in *Inputs) { in.Sessions, in.CostPerSecond, in.CostPerReclaim = 10_000_000, 1e12, 1e12 },
		"margin of 10s": func(in *Inputs) { in.Margin = 10 * time.Second },
	} {
		in := Defaults()
		change(&in)
		plan, err := Recommend(in, 10*time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = plan
	}
	return out
}

// TestReports goes through what is written of plans of every kind.
func TestReports(t *testing.T) {
	all := plans(t)
	t.Run("drawing", func(t *testing.T) { testDrawing(t, all) })
	t.Run("text", func(t *testing.T) { testText(t, all) })
	t.Run("JSON", func(t *testing.T) { testJSON(t, all) })
}

// box is where a text lies, its width estimated generously.
type box struct {
	text                     string
	left, top, right, bottom float64
}

// testDrawing: the file is XML that stands alone, has both colour schemes, and no text lies on another, or outside.
func testDrawing(t *testing.T, plans map[string]Plan) {
	t.Helper()
	for name, plan := range plans {
		var b bytes.Buffer
		if err := plan.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, not := range []string{"http://", "https://", "NaN", "Inf", "url(", "href"} {
			if rest := strings.Replace(text, `xmlns="http://www.w3.org/2000/svg"`, "", 1); strings.Contains(rest, not) {
				t.Errorf("%s: holds %q", name, not)
			}
		}
		//nolint:misspell // CSS spells it so
		if !strings.Contains(text, "prefers-color-scheme: dark") || strings.Count(text, "<path") != 5 {
			t.Errorf("%s: lacks a colour scheme or a line", name)
		}
		boxes := texts(t, text)
		for i, a := range boxes {
			if a.left < 0 || a.right > svgWidth {
				t.Errorf("%s: %q reaches from %v to %v", name, a.text, a.left, a.right)
			}
			for _, c := range boxes[:i] {
				if a.left < c.right && c.left < a.right && a.top < c.bottom && c.top < a.bottom {
					t.Errorf("%s: %q lies on %q", name, a.text, c.text)
				}
			}
		}
	}
}

// texts reads the drawing's texts and where they lie.
func texts(t *testing.T, svg string) []box {
	t.Helper()
	var out []box
	d := xml.NewDecoder(strings.NewReader(svg))
	var at map[string]string
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == "text" {
				at, text = map[string]string{}, strings.Builder{}
				for _, a := range e.Attr {
					at[a.Name.Local] = a.Value
				}
			}
		case xml.CharData:
			text.Write(e)
		case xml.EndElement:
			if e.Name.Local == "text" {
				out = append(out, place(t, at, text.String()))
			}
		}
	}
}

func place(t *testing.T, at map[string]string, text string) box {
	t.Helper()
	x, err1 := strconv.ParseFloat(at["x"], 64)
	y, err2 := strconv.ParseFloat(at["y"], 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	size := map[string]float64{"title": 17, "small": 11, "name": 12.5, "": 12}[at["class"]]
	w := 0.6 * size * float64(len(text))
	left := map[string]float64{"start": x, "middle": x - w/2, "end": x - w}[at["text-anchor"]]
	return box{text, left, y - size*0.8, left + w, y + size*0.25}
}

// testText: it says everything, and nothing that is no number.
func testText(t *testing.T, plans map[string]Plan) {
	t.Helper()
	for name, plan := range plans {
		var b strings.Builder
		if err := errors.Join(plan.WriteText(&b), plan.Inputs.WriteExplanation(&b)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"margin", "renewal interval", "attempt timeout", "budget of a waiter", "losing a live lease", "false reclaims", "renewals",
			"remaining TTL", "waking", "retries", "start", "does not mean recovery in", "10m ", "Assumed, and worth doubting", "Pareto"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: the report lacks %q", name, want)
			}
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "%!") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}

// testJSON: it is JSON, and the histograms of a sample can be read again.
func testJSON(t *testing.T, plans map[string]Plan) {
	t.Helper()
	c := newCounts()
	for i := range 1000 {
		c.add(float64(i) * 1e-5)
	}
	sample := Sampled{Renewals: c.measured(time.Minute), Pauses: newCounts().measured(time.Minute)}
	for name, plan := range plans {
		var b bytes.Buffer
		if err := plan.WriteJSON(&b, Extra{Sampled: &sample, Remarks: []string{"a"}}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got struct {
			Recommended struct {
				TTL float64 `json:"ttl_ms"`
			}
			TTLs    []any
			Sampled map[string]json.RawMessage
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Recommended.TTL != ms(plan.Points[plan.Best].TTL) || len(got.TTLs) != len(plan.Points) {
			t.Fatalf("%s: %v, %+v", name, err, got)
		}
		m, err := Read("again", bytes.NewReader(got.Sampled["renewals"]), "")
		if err != nil || m.Over != time.Minute || m.Buckets[len(m.Buckets)-1].Count != 1000 {
			t.Errorf("%s: read again: %v, %+v", name, err, m)
		}
	}
}

func TestFigures(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.00012: "1.2e-4", 0.5: "0.5", 12.345: "12.3", 1234.5: "1234", 2.5e6: "2.5e6", 1e9: "1e9"} {
		if got := figure(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0s", 0.0000123: "12.3µs", 0.00512: "5.12ms", 0.25: "250ms", 9.876: "9.88s", 18.86: "18.9s", 60: "1m", 75: "1m15s", 3600: "1h", 3661: "1h1m"} {
		if got := short(s); got != want {
			t.Errorf("%v s is %q, want %q", s, got, want)
		}
	}
	for d, want := range map[time.Duration]string{20 * time.Second: "20*time.Second", 90 * time.Second: "90*time.Second", 2 * time.Minute: "2*time.Minute", 1540 * time.Millisecond: "1540*time.Millisecond"} {
		if got := code(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
