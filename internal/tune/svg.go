package tune

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// The drawing's measures, in pixels.
const (
	svgWidth    = 860.0
	svgLeft     = 76.0
	svgRight    = 28.0
	svgTop      = 128.0
	panelHeight = 128.0
	panelGap    = 46.0
	svgBottom   = 46.0
)

// style holds both colour schemes; the viewer's setting chooses. Plain classes, because not every viewer knows variables.
//
//nolint:misspell // CSS spells it so
const style = `
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #3b434d }
.bg { fill: #ffffff } .title { font-size: 17px; font-weight: 600; fill: #16191d } .name { font-weight: 600; fill: #16191d }
.small { font-size: 11px; fill: #667180 } .grid { stroke: #e4e8ec; stroke-width: 1 } .axis { stroke: #9aa4af; stroke-width: 1 }
.unfit { fill: #f3f4f6 } .best { stroke: #b45309; stroke-width: 1.5; stroke-dasharray: 5 4 }
.bound { stroke: #667180; stroke-width: 1; stroke-dasharray: 2 3 }
.a { stroke: #1d5fbf } .b { stroke: #0f8a6a } .line { fill: none; stroke-width: 2; stroke-linejoin: round }
.dota { fill: #1d5fbf } .dotb { fill: #0f8a6a } .texta { fill: #1d5fbf; font-weight: 600 } .textb { fill: #0b7358; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #c3ccd6 } .bg { fill: #14181d } .title, .name { fill: #f0f3f6 } .small { fill: #8d98a5 } .grid { stroke: #262d35 }
.axis { stroke: #5b6672 } .unfit { fill: #1c2127 } .best { stroke: #f0a356 } .bound { stroke: #8d98a5 }
.a { stroke: #6ea8ff } .b { stroke: #4fd1a5 } .dota { fill: #6ea8ff } .dotb { fill: #4fd1a5 } .texta { fill: #8bb9ff } .textb { fill: #4fd1a5 }
}
`

// curve is one line of a panel.
type curve struct {
	name  string // empty where the panel's name says it
	class string // a or b
	y     func(Point) float64
}

// panel is one chart: a quantity over the TTL, both logarithmic.
type panel struct {
	name   string
	curves []curve
	label  func(float64) string
	lines  []float64 // where lines across may lie; none for powers of ten
	least  float64   // what is lower is not drawn
	bound  float64   // a line across, 0 for none
	told   string    // what the bound is
}

func (p Plan) panels() []panel {
	in := p.Inputs
	return []panel{
		{name: "Probability that a live session loses its leases within a day", label: share, least: min(max(in.Target*1e-5, 1e-9), in.Target/10), bound: in.Target,
			told: "target " + probability(in.Target), curves: []curve{{class: "a", y: func(q Point) float64 { return q.LossPerDay }}}},
		{name: "Recovery after a crash", label: short, lines: []float64{0.1, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 96 * 3600}, curves: []curve{
			{name: "p99", class: "a", y: func(q Point) float64 { return q.Recovery.Total.P99.Seconds() }},
			{name: "p50", class: "b", y: func(q Point) float64 { return q.Recovery.Total.P50.Seconds() }}}},
		{name: "Renewals a second, of " + sessions(in.Sessions), label: figure, bound: in.MaxRenewals, told: "bound " + figure(in.MaxRenewals),
			curves: []curve{{class: "a", y: func(q Point) float64 { return q.RenewalsPerSecond }}}},
		{name: fmt.Sprintf("Cost a day: %s a blocked second, %s a false reclaim", figure(in.CostPerSecond), figure(in.CostPerReclaim)), label: figure,
			curves: []curve{{class: "a", y: func(q Point) float64 { return q.CostPerDay }}}},
	}
}

// around is the plan without the TTLs that are too far from the recommended one to be of interest.
func (p Plan) around() Plan {
	const factor = 25
	best, out := p.Points[p.Best], Plan{Inputs: p.Inputs, Met: p.Met}
	for i, q := range p.Points {
		if i == p.Best {
			out.Best = len(out.Points)
		}
		if q.TTL*factor >= best.TTL && q.TTL <= best.TTL*factor {
			out.Points = append(out.Points, q)
		}
	}
	return out
}

// share is a probability on an axis, where 1 is not "over" anything.
func share(x float64) string {
	if x == 1 {
		return "100%"
	}
	return probability(x)
}

// WriteSVG draws what each TTL comes to: the probability of a loss, recovery, renewals and cost, with the recommended TTL marked. The
// file stands alone, and follows the viewer's light or dark setting.
func (p Plan) WriteSVG(w io.Writer) error {
	p = p.around()
	panels := p.panels()
	height := svgTop + float64(len(panels))*(panelHeight+panelGap) - panelGap + svgBottom
	var b strings.Builder
	best := p.Points[p.Best]
	title := fmt.Sprintf("TTL %s: what a shorter and a longer one would come to", plain(best.TTL))
	if !p.Met {
		title = fmt.Sprintf("No TTL is within the bounds; the nearest is %s", plain(best.TTL))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label="%s">`+"\n",
		svgWidth, height, svgWidth, height, html.EscapeString(title))
	fmt.Fprintf(&b, "<style>%s</style>\n<rect class=\"bg\" width=\"%g\" height=\"%g\"/>\n", style, svgWidth, height)
	label(&b, svgLeft, 30, "title", "start", title)
	for i, line := range p.captions() {
		label(&b, svgLeft, 50+float64(i)*16, "small", "start", line)
	}
	for i, one := range panels {
		p.draw(&b, one, svgTop+float64(i)*(panelHeight+panelGap))
	}
	bottom := height - svgBottom
	for _, t := range p.ticks() {
		label(&b, p.x(t), bottom+18, "", "middle", plain(t))
	}
	label(&b, svgLeft+(svgWidth-svgLeft-svgRight)/2, bottom+36, "small", "middle", "TTL (margin chosen for each)")
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the drawing: %w", err)
	}
	return nil
}

// captions say what the drawing rests on.
func (p Plan) captions() []string {
	in := p.Inputs
	fault := func(what string, d Dist, every time.Duration) string {
		if every == 0 {
			return "no " + what + "s"
		}
		return fmt.Sprintf("a %s every %s (p50 %s, p99 %s)", what, often(every), short(d.Upper(0.5)), short(d.Upper(0.01)))
	}
	return []string{
		fmt.Sprintf("renewals p50 %s, p99 %s; %s", short(in.Renewals.Upper(0.5)), short(in.Renewals.Upper(0.01)), fault("pause", in.Pauses, in.PauseEvery)),
		fault("store outage", in.Outages, in.OutageEvery) + fmt.Sprintf("; work starts in %v", in.Start),
		"dashed, and the values at the right: " + plain(p.Points[p.Best].TTL) + "; shaded: out of bounds",
	}
}

// x is where a TTL lies.
func (p Plan) x(ttl time.Duration) float64 {
	low, high := math.Log(p.Points[0].TTL.Seconds()), math.Log(p.Points[len(p.Points)-1].TTL.Seconds())
	if high <= low {
		return svgLeft + (svgWidth-svgLeft-svgRight)/2
	}
	return svgLeft + (svgWidth-svgLeft-svgRight)*(math.Log(ttl.Seconds())-low)/(high-low)
}

// ticks are the round TTLs of the axis within its range.
func (p Plan) ticks() []time.Duration {
	var out []time.Duration
	for _, s := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 4 * 3600, 24 * 3600} {
		if t := seconds(s); t >= p.Points[0].TTL && t <= p.Points[len(p.Points)-1].TTL {
			out = append(out, t)
		}
	}
	return out
}

func (p Plan) draw(b *strings.Builder, one panel, top float64) {
	low, high := one.limits(p.Points)
	y := func(v float64) float64 {
		v = min(max(v, low), high)
		return top + panelHeight*(1-(math.Log(v)-math.Log(low))/(math.Log(high)-math.Log(low)))
	}
	left, right, bottom := svgLeft, svgWidth-svgRight, top+panelHeight
	p.shade(b, top)
	for _, t := range p.ticks() {
		line(b, "grid", p.x(t), top, p.x(t), bottom)
	}
	for _, v := range one.across(low, high) {
		line(b, "grid", left, y(v), right, y(v))
		label(b, left-8, y(v)+4, "small", "end", one.label(v))
	}
	line(b, "axis", left, bottom, right, bottom)
	p.head(b, one, top-9)
	if one.bound > 0 {
		line(b, "bound", left, y(one.bound), right, y(one.bound))
	}
	best := p.Points[p.Best]
	line(b, "best", p.x(best.TTL), top, p.x(best.TTL), bottom)
	for _, c := range one.curves {
		var path strings.Builder
		pen := "M"
		for _, q := range p.Points {
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, p.x(q.TTL), y(c.y(q)))
			if pen = " L"; c.y(q) < low {
				break // the rest lies below the panel
			}
		}
		fmt.Fprintf(b, "<path class=\"line %s\" d=\"%s\"/>\n", c.class, path.String())
	}
	for _, c := range one.curves {
		fmt.Fprintf(b, "<circle class=\"dot%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", c.class, p.x(best.TTL), y(c.y(best)))
	}
}

// head writes above a panel what it shows and, at the right, the values at the recommended TTL: beside the dots they would
// lie on a line sooner or later.
func (p Plan) head(b *strings.Builder, one panel, y float64) {
	name := one.name
	if one.bound > 0 {
		name += " (dotted: " + one.told + ")"
	}
	label(b, svgLeft, y, "name", "start", name)
	best := p.Points[p.Best]
	fmt.Fprintf(b, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", svgWidth-svgRight, y)
	for i, c := range one.curves {
		text := one.label(c.y(best))
		if c.name != "" {
			text = c.name + " " + text
		}
		if i > 0 {
			text = ", " + text
		}
		fmt.Fprintf(b, "<tspan class=\"text%s\">%s</tspan>", c.class, html.EscapeString(text))
	}
	b.WriteString("</text>\n")
}

// shade marks the TTLs that miss a bound, from half-way between neighbours.
func (p Plan) shade(b *strings.Builder, top float64) {
	edge := func(i int) float64 {
		switch {
		case i <= 0:
			return svgLeft
		case i >= len(p.Points):
			return svgWidth - svgRight
		}
		return (p.x(p.Points[i-1].TTL) + p.x(p.Points[i].TTL)) / 2
	}
	for i := 0; i < len(p.Points); {
		j := i
		for j < len(p.Points) && p.Points[j].Unfit != "" {
			j++
		}
		if j == i {
			i++
			continue
		}
		fmt.Fprintf(b, "<rect class=\"unfit\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%g\"/>\n", edge(i), top, edge(j)-edge(i), panelHeight)
		i = j
	}
}

// limits are the least and the greatest value of the panel's axis: lines across, at least two.
func (one panel) limits(points []Point) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	take := func(v float64) {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	for _, c := range one.curves {
		for _, q := range points {
			take(c.y(q))
		}
	}
	take(one.bound)
	if math.IsInf(low, 1) {
		return 0.1, 1
	}
	low = max(low, one.least)
	bottom, top := math.Pow(10, math.Floor(math.Log10(low)+1e-9)), math.Pow(10, math.Ceil(math.Log10(high)-1e-9))
	if n := len(one.lines); n > 0 && low >= one.lines[0] && high <= one.lines[n-1] {
		bottom, top = one.lines[0], one.lines[n-1]
		for _, v := range one.lines {
			if v <= low {
				bottom = v
			}
			if v >= high {
				top = min(top, v)
			}
		}
	}
	return bottom, max(top, bottom*10)
}

// across is where lines go across: at most six powers of ten, or what the panel wants.
func (one panel) across(low, high float64) []float64 {
	var out []float64
	for _, v := range one.lines {
		if v >= low && v <= high {
			out = append(out, v)
		}
	}
	if len(out) > 0 {
		return out
	}
	n := int(math.Round(math.Log10(high / low)))
	step := max((n+4)/5, 1)
	for i := 0; i <= n; i += step {
		out = append(out, low*math.Pow(10, float64(i)))
	}
	return out
}

func line(b *strings.Builder, class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

func label(b *strings.Builder, x, y float64, class, anchor, text string) {
	fmt.Fprintf(b, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", class, x, y, anchor, html.EscapeString(text))
}
