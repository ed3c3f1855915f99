package report

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// The drawing, in units of the picture.
const (
	chartWidth, chartHeight = 880, 380
	chartLeft, chartTop     = 56, 34
	chartRight, chartBottom = 250, 40 // the legend stands in the right margin
	chartGap                = 0.25    // of a group's width, between it and the next
	chartLine               = 20      // of the legend
	chartTicks              = 6
	chartLinear             = 12 // a largest to smallest figure above it is drawn on a logarithmic scale
	chartText, chartPaper   = "#333", "#fff"
	chartFont               = "font-family=\"sans-serif\" font-size=\"12\""
)

// inks tell the rows apart, also in grey.
func inks() []string {
	return []string{"#1b6ca8", "#f2a541", "#4f9d69", "#c44536", "#7d5ba6", "#7a7a7a", "#2d3142", "#9bc1bc", "#d991ba", "#5c415d"}
}

// Chart is the picture of the first table that is to be drawn, as SVG: a group of bars for each column, a bar for each row, with a line from the least to the
// most of its rounds. It returns "" if no table is.
func (r *Report) Chart() string {
	for _, t := range r.Tables {
		if t.Chart {
			return t.draw()
		}
	}
	return ""
}

// ChartFile is the name of the picture's file.
func (r *Report) ChartFile() string { return r.Name + ".svg" }

// WriteChart writes the picture to folder, if there is one.
func (r *Report) WriteChart(folder string) error {
	text := r.Chart()
	if text == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(folder, r.ChartFile()), []byte(text), 0o644)
}

// scale turns figures into heights.
type scale struct {
	low, high float64
	log       bool
}

func (t Table) scale() scale {
	least, most := math.Inf(1), 0.0
	for _, row := range t.Rows {
		for _, c := range row.Cells {
			if c.Median != nil && *c.Median > 0 {
				least, most = min(least, *c.Median), max(most, *c.Median, c.Max)
			}
		}
	}
	if most > chartLinear*least {
		return scale{low: math.Pow(10, math.Floor(math.Log10(least))), high: most * 1.1, log: true}
	}
	return scale{high: max(most*1.1, 1e-9)}
}

// y is where a figure stands in the picture.
func (s scale) y(value float64) float64 {
	part := value / s.high
	if s.log {
		part = math.Log(max(value, s.low)/s.low) / math.Log(s.high/s.low)
	}
	const height = chartHeight - chartTop - chartBottom
	return chartTop + height*(1-part)
}

// ticks are the figures that get a line of their own.
func (s scale) ticks() []float64 {
	var at []float64
	if s.log {
		for tick := s.low; tick <= s.high; tick *= 10 {
			at = append(at, tick)
		}
		return at
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/chartTicks)))
	for _, times := range []float64{2, 5, 10} {
		if s.high/(step*times) <= chartTicks {
			step *= times
			break
		}
	}
	for n := 0; float64(n)*step <= s.high; n++ {
		at = append(at, float64(n)*step)
	}
	return at
}

func (t Table) draw() string {
	var b strings.Builder
	s := t.scale()
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" %s fill=\"%s\">\n", chartWidth, chartHeight, chartFont, chartText)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"%s\"/>\n", html.EscapeString(t.Title), chartPaper)
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"18\" font-weight=\"bold\">%s</text>\n", chartLeft, html.EscapeString(strings.TrimSuffix(t.Title, ":")))
	const right = chartWidth - chartRight
	for _, tick := range s.ticks() {
		y := s.y(tick)
		fmt.Fprintf(&b, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", chartLeft, y, right, chartLeft-6, y+4, Format(tick))
	}
	group := float64(right-chartLeft) / float64(max(len(t.Columns), 1))
	bar := group * (1 - chartGap) / float64(max(len(t.Rows), 1))
	for i, column := range t.Columns {
		left := chartLeft + group*(float64(i)+chartGap/2)
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", left+group*(1-chartGap)/2, chartHeight-22, html.EscapeString(column))
		for j, row := range t.Rows {
			if c := row.Cells[i]; c.Median != nil {
				c.draw(&b, s, left+bar*float64(j), bar, inks()[j%len(inks())])
			}
		}
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (chartLeft+right)/2, chartHeight-5, html.EscapeString(t.Label))
	for j, row := range t.Rows {
		y := chartTop + j*chartLine
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			right+12, y, inks()[j%len(inks())], right+30, y+10, html.EscapeString(row.Label))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw is one bar with the band of its rounds.
func (c Cell) draw(b *strings.Builder, s scale, x, width float64, ink string) {
	top, floor := s.y(*c.Median), s.y(s.low)
	fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>%s</title></rect>\n", x, top, width*0.9, floor-top, ink, html.EscapeString(c.String()))
	if len(c.Rounds) > 1 {
		fmt.Fprintf(b, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#000\"/>\n", x+width*0.45, s.y(c.Min), s.y(c.Max))
	}
}
