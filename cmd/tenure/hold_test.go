//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/sqlite"
)

// saleWorld has holds in every state.
func saleWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.ok("migrate")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: strings.TrimPrefix(w.store, "sqlite:")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	makeHolds(t, s.Holds())
	return w
}

// holdNo is the id of the hold with that number.
func holdNo(n int) fence.ID { return fence.ID{6: 0x70, 8: 0x80, 15: byte(n)} }

// makeHolds makes holds 1 held, 2 confirmed, 3 released, 4 expired, 5 late, on seats of their own, and 6 held on all that is left of "stock".
func makeHolds(t *testing.T, h holds) {
	t.Helper()
	var items []hold.Item
	for n := range 6 {
		items = append(items, hold.Item{Name: fmt.Sprint("seat/", n), Quantity: 1})
	}
	if err := h.Stock(t.Context(), append(items, hold.Item{Name: "stock", Quantity: 10})); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 6; n++ {
		req := hold.PlaceRequest{ID: holdNo(n), Actor: "ann", TTL: time.Hour, Lines: []hold.Line{{Item: fmt.Sprint("seat/", n), Quantity: 1}}}
		switch n {
		case 4, 5:
			req.TTL = time.Millisecond
		case 6:
			req.Actor, req.Lines = "bob", []hold.Line{{Item: "stock", Quantity: 10}}
		}
		if _, err := h.Place(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Release(t.Context(), holdNo(3), "ann"); err != nil {
		t.Fatal(err)
	}
	for state := hold.Held; state != hold.Expired; {
		one, err := h.Get(t.Context(), holdNo(5))
		if err != nil {
			t.Fatal(err)
		}
		state = one.State
	}
	for _, n := range []int{2, 5} {
		if _, err := h.Confirm(t.Context(), hold.ConfirmRequest{ID: holdNo(n), Actor: "ann", Reference: fmt.Sprint("charge-", n)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHoldList: each filter, pages, and what is for sale.
func TestHoldList(t *testing.T) {
	t.Parallel()
	w := saleWorld(t)
	for args, want := range map[string]string{
		"":                                     "1 held,2 confirmed,3 released,4 expired,5 late,6 held",
		"--state late":                         "5 late",
		"--state held,expired":                 "1 held,4 expired,6 held",
		"--state held --state late":            "1 held,5 late,6 held",
		"--actor bob":                          "6 held",
		"--actor ann --state held":             "1 held",
		"--item seat/2":                        "2 confirmed",
		"--item seat/2 --actor bob":            "",
		"--limit 2":                            "1 held,2 confirmed",
		"--limit 6":                            "1 held,2 confirmed,3 released,4 expired,5 late,6 held",
		"--after " + holdNo(4).String():        "5 late,6 held",
		"--item none --state late --actor ann": "",
	} {
		var out struct {
			Holds []holdJSON `json:"holds"`
			More  bool       `json:"more"`
		}
		if text := w.ok(append([]string{"hold", "ls", "--json"}, strings.Fields(args)...)...); json.Unmarshal([]byte(text), &out) != nil {
			t.Fatal(text)
		}
		var got []string
		for _, h := range out.Holds {
			got = append(got, h.ID[len(h.ID)-1:]+" "+h.State)
		}
		if strings.Join(got, ",") != want || out.More != (args == "--limit 2") {
			t.Errorf("%q: %v, more %v; want %s", args, got, out.More, want)
		}
	}
	text := w.ok("hold", "ls")
	for _, want := range []string{"ID  ", "LEFT", "charge-5", "1 of seat/1", "10 of stock"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := w.do("hold", "ls", "--limit", "2"); !strings.Contains(got.last(), "--after "+holdNo(2).String()) {
		t.Errorf("no way on: %s", got.last())
	}
	w.fails(exitUsage, "want one of held", "hold", "ls", "--state", "sold")
	w.fails(exitUsage, "--limit 0", "hold", "ls", "--limit", "0")
	w.fails(exitUsage, "hold \"x\"", "hold", "ls", "--after", "x")
}

func TestHoldItems(t *testing.T) {
	t.Parallel()
	w := saleWorld(t)
	text := w.ok("hold", "items")
	for _, want := range []string{"ITEM    QUANTITY  SOLD  HELD  FREE", "seat/1  1         0     1     0", "seat/2  1         1     0     0", "seat/4  1         0     0     1", "stock   10        0     10    0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := w.do("hold", "items", "--prefix", "seat/", "--limit", "1"); !strings.Contains(got.last(), "--after seat/0") || strings.Contains(got.stdout, "seat/1") {
		t.Errorf("a page: %+v", got)
	}
	if got := w.ok("hold", "items", "--after", "seat/5", "--json"); !strings.Contains(got, `"free": 0`) || strings.Contains(got, "seat") {
		t.Errorf("JSON: %s", got)
	}
	w.fails(exitUsage, "--limit", "hold", "items", "--limit", "0")
}

func TestHoldShowAndRelease(t *testing.T) {
	t.Parallel()
	w := saleWorld(t)
	for n, want := range map[int]string{1: "held; it expires in ", 2: "confirmed, ", 3: "released, ", 4: "expired, ", 5: "to be given back"} {
		if got := w.ok("hold", "show", holdNo(n).String()); !strings.Contains(got, want) || !strings.Contains(got, fmt.Sprint("1 of seat/", n)) {
			t.Errorf("hold %d: %s", n, got)
		}
	}
	if got := w.ok("hold", "show", holdNo(5).String(), "--json"); !strings.Contains(got, `"reference": "charge-5"`) || !strings.Contains(got, `"ended_ago_ms": `) {
		t.Errorf("JSON: %s", got)
	}
	w.fails(exitFailed, "no hold", "hold", "show", holdNo(9).String())
	w.fails(exitUsage, "hold \"x\"", "hold", "show", "x")

	w.fails(exitUsage, "add --yes", "hold", "release", holdNo(1).String())
	if got := w.ok("hold", "show", holdNo(1).String()); !strings.Contains(got, "held") {
		t.Errorf("without --yes: %s", got)
	}
	if got := w.ok("hold", "release", holdNo(1).String(), "--yes"); !strings.Contains(got, ": released") {
		t.Errorf("released: %s", got)
	}
	for n, want := range map[int]string{1: ": released", 3: ": released", 4: ": expired"} {
		if got := w.ok("hold", "release", holdNo(n).String()); !strings.Contains(got, want) {
			t.Errorf("hold %d, released again: %s", n, got)
		}
	}
	w.fails(exitFailed, "releasing it is refused", "hold", "release", holdNo(2).String(), "--yes")
	w.fails(exitFailed, "releasing it is refused", "hold", "release", holdNo(5).String(), "--yes")
	if got := w.ok("hold", "items", "--prefix", "seat/1"); !strings.Contains(got, "seat/1  1         0     0     1") {
		t.Errorf("after the release: %s", got)
	}
}

// TestPostgresHold: the same commands on PostgreSQL.
func TestPostgresHold(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	l, err := environment{getenv: func(string) string { return "" }}.locate(w.store)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), l, openOptions{made: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	h, err := holdsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	makeHolds(t, h)
	if got := w.ok("hold", "ls", "--state", "late"); !strings.Contains(got, "charge-5") {
		t.Errorf("ls: %s", got)
	}
	if got := w.ok("hold", "items", "--prefix", "stock"); !strings.Contains(got, "stock  10        0     10    0") {
		t.Errorf("items: %s", got)
	}
	if got := w.ok("hold", "show", holdNo(2).String()); !strings.Contains(got, "charge-2") {
		t.Errorf("show: %s", got)
	}
	w.fails(exitUsage, "add --yes", "hold", "release", holdNo(1).String())
	w.ok("hold", "release", holdNo(1).String(), "--yes")
	w.fails(exitFailed, "releasing it is refused", "hold", "release", holdNo(2).String(), "--yes")
}

// TestHoldWithoutStore: commands that look make no store.
func TestHoldWithoutStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{{"hold", "ls"}, {"hold", "items"}, {"hold", "show", holdNo(1).String()}, {"hold", "release", holdNo(1).String(), "--yes"}} {
		w.fails(exitNoStore, "there is no store", args...)
	}
	if files, err := os.ReadDir(w.dir); err != nil || len(files) != 0 {
		t.Errorf("made: %v, %v", files, err)
	}
}
