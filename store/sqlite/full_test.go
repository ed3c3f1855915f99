package sqlite

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// Requests that share a transaction do not share a fate: the one that finds no space fails alone, and nothing
// of it is left.
func TestFullSparesNeighbours(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	kept := p.take("kept")
	var many []string
	for i := range lease.MaxNames {
		many = append(many, strconv.Itoa(i)+strings.Repeat("/long", 90))
	}
	big := lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: many}
	tokens := issued(t, path)

	limitPages(t, s, "(SELECT page_count + 4 FROM pragma_page_count)")
	gate := holdWriter(t, s)
	results := map[string]chan error{"big": make(chan error, 1), "renew": make(chan error, 1), "drop": make(chan error, 1), "small": make(chan error, 1)}
	go func() { _, err := s.Acquire(t.Context(), big); results["big"] <- err }()
	waitQueued(t, s, 1)
	go func() { results["drop"] <- p.release(kept) }()
	go func() { results["renew"] <- p.renew() }()
	go func() { _, err := p.ask("small"); results["small"] <- err }()
	waitQueued(t, s, 4)
	gate.open()
	for name, result := range results {
		err := <-result
		if name == "big" {
			wantKind(t, err, lease.ErrUnavailable, "free some space")
			wantKind(t, err, ErrFull)
		} else if err != nil {
			t.Errorf("%s shared the fate of a request that found no space: %v", name, err)
		}
	}
	if got := issued(t, path); got != tokens+1 {
		t.Errorf("%d tokens were issued, want the one of the small request", got-tokens)
	}
	if n := plainValue(t, path, `SELECT count(*) FROM tenure_lease WHERE names > 1`); n != "0" {
		t.Errorf("%s rows are left of a refused request", n)
	}
	limitPages(t, s, "1000000")
	if _, err := s.Acquire(t.Context(), big); err != nil {
		t.Errorf("the same request, when there is space again: %v", err)
	}
}

// limitPages is a full disk that can be had anywhere. The limit is an expression.
func limitPages(t *testing.T, s *Store, limit string) {
	t.Helper()
	err := s.writer.do(t.Context(), &request{op: "limit", do: func(b *batch) error {
		var n int
		if err := s.conn.QueryRowContext(t.Context(), `SELECT `+limit).Scan(&n); err != nil {
			return b.fail(err)
		}
		_, err := s.conn.ExecContext(t.Context(), `PRAGMA max_page_count = `+strconv.Itoa(n))
		return err
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
}
