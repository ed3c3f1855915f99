package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChart: the picture is well-formed whatever stands in the labels, has a bar for each figure, and none is invented for a cell without one.
func TestChart(t *testing.T) {
	r := sample()
	if r.Chart() != "" {
		t.Error("a report without a table to be drawn has a picture")
	}
	r.Tables[0].Chart = true
	r.Tables[0].Rows[0].Label = `a < b & "c"`
	picture := r.Chart()
	if err := wellFormed(picture); err != nil {
		t.Errorf("%v:\n%s", err, picture)
	}
	const legend, paper = 2, 1
	if got, want := strings.Count(picture, "<rect"), 2+legend+paper; got != want {
		t.Errorf("%d rectangles, want %d: two figures, two rows in the legend, the paper", got, want)
	}
	folder := t.TempDir()
	if _, err := r.Write(folder); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(folder, "sample.svg"))
	if err != nil || string(written) != picture {
		t.Errorf("the picture beside the report is another one (%v)", err)
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestScale: a taller bar is a larger figure, on both scales, and every tick lies within the picture.
func TestScale(t *testing.T) {
	for _, s := range []scale{{high: 1.2}, {high: 11}, {high: 999}, {low: 0.1, high: 14, log: true}} {
		if small, large := s.y(s.high/4), s.y(s.high/2); small <= large || large < chartTop {
			t.Errorf("%+v: a quarter at %v, a half at %v", s, small, large)
		}
		ticks := s.ticks()
		if len(ticks) < 2 || len(ticks) > chartTicks+1 {
			t.Errorf("%+v: ticks %v", s, ticks)
		}
		for _, tick := range ticks {
			if y := s.y(tick); y < chartTop-1 || y > chartHeight-chartBottom+1 {
				t.Errorf("%+v: tick %v is at %v, outside", s, tick, y)
			}
		}
	}
}
