package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// List implements [hold.Office]. It reads without any lock, and all of its answer from one state of the file.
func (h *Holds) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	found := []hold.Hold{}
	err := h.read(ctx, "list", func(b *holdBatch) error {
		records, err := b.list(&req)
		for _, r := range records {
			found = append(found, b.tell(r))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// part is where holds of a state stand. Those whose time has passed unnoticed are a part of their own, so that whoever looks for what is live passes over nothing that has ended.
type part struct {
	state  hold.State
	stored int    // the state in the rows
	when   string // more about the deadline, or empty
}

func listParts() []part {
	return []part{
		{hold.Held, 1, ` > ?2`}, {hold.Expired, 1, ` <= ?2`},
		{hold.Confirmed, 2, ``}, {hold.Released, 3, ``}, {hold.Expired, 4, ``}, {hold.Late, 5, ``},
	}
}

// text selects ids after ?1, by authority time ?2, at most ?3, of actor ?4, on item ?5. What is live is ordered after it was found, as is what came late; all else is found in order.
func (p *part) text(actor, item bool) string {
	cond := func(table, deadline string) string {
		text := fmt.Sprintf(`%s.state = %d`, table, p.stored)
		if p.when != `` {
			text += ` AND ` + table + `.` + deadline + p.when
		}
		return text
	}
	byHold := func(index, more string) string {
		return `SELECT h.id FROM tenure_hold h ` + index + ` WHERE ` + more + cond(`h`, `at`) + ` AND h.id > ?1`
	}
	const ordered = ` ORDER BY 1 LIMIT ?3`
	switch {
	case actor:
		index := `INDEXED BY tenure_hold_actor`
		if p.stored == 1 {
			index = `INDEXED BY tenure_hold_live`
		}
		text := byHold(index, `h.actor = ?4 AND `)
		if item {
			text += ` AND EXISTS (SELECT 1 FROM tenure_line l WHERE l.hold = h.id AND l.item = ?5)`
		}
		return text + ordered
	case item:
		index := `tenure_line_item`
		if p.stored == 1 {
			index = `tenure_line_live`
		}
		return `SELECT l.hold FROM tenure_line l INDEXED BY ` + index + ` WHERE l.item = ?5 AND ` + cond(`l`, `until`) + ` AND l.hold > ?1` + ordered
	case p.stored == 1 || p.state == hold.Late:
		return byHold(`INDEXED BY tenure_hold_at`, ``) + ordered
	}
	return strings.Replace(byHold(``, ``), `h.state`, `+h.state`, 1) + ordered // in the order of ids, passing over others
}

func (b *holdBatch) list(req *hold.ListRequest) ([]*holdRecord, error) {
	var ids []fence.ID
	collect := func(text string) error {
		return b.each(func(rows *sql.Rows) error {
			var id []byte
			err := rows.Scan(&id)
			ids = append(ids, asID(id))
			return err
		}, text, req.After[:], b.now, req.Limit, req.Actor, req.Item)
	}
	if req.Actor == "" && req.Item == "" && len(req.States) == 0 {
		if err := collect(`SELECT id FROM tenure_hold WHERE id > ?1 ORDER BY id LIMIT ?3`); err != nil {
			return nil, err
		}
		return b.findAll(ids)
	}
	for _, p := range listParts() {
		if len(req.States) > 0 && !slices.Contains(req.States, p.state) {
			continue
		}
		if err := collect(p.text(req.Actor != "", req.Item != "")); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(ids, func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) })
	return b.findAll(ids[:min(len(ids), req.Limit)])
}

// selectItems sums what is held by holds that have expired unnoticed.
const selectItems = `SELECT i.name, i.quantity, i.sold, i.held - (SELECT coalesce(sum(l.quantity), 0) FROM tenure_line l WHERE l.item = i.name AND l.state = 1 AND l.until <= ?1)
	FROM tenure_item i WHERE i.name > ?2 AND i.name >= ?3 AND i.name < ?4 ORDER BY i.name LIMIT ?5`

// Items implements [hold.Office]. It reads without any lock, and all of its answer from one state of the file.
func (h *Holds) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	if err := hold.CheckPage(prefix, after, limit); err != nil {
		return nil, err
	}
	end := prefix + strings.Repeat("\U0010ffff", hold.MaxItem/4+1) // after every name that starts with the prefix
	found := []hold.ItemInfo{}
	err := h.read(ctx, "items", func(b *holdBatch) error {
		return b.each(func(rows *sql.Rows) error {
			var i hold.ItemInfo
			err := rows.Scan(&i.Name, &i.Quantity, &i.Sold, &i.Held)
			found = append(found, i)
			return err
		}, selectItems, b.now, after, prefix, end, limit)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// selectOver has a part for each state, so that each is found in the order of its end. A deadline that has passed is an end, noticed or not.
const (
	overOf     = `SELECT id, at FROM (SELECT id, at FROM tenure_hold WHERE at <= ?1 AND state = `
	overFirst  = ` ORDER BY at, id LIMIT ?2)`
	selectOver = `SELECT id FROM (` + overOf + `1` + overFirst + ` UNION ALL ` + overOf + `2` + overFirst + ` UNION ALL ` + overOf + `3` + overFirst + ` UNION ALL ` +
		overOf + `4` + overFirst + ` UNION ALL ` + overOf + `5` + overFirst + `) ORDER BY at, id LIMIT ?2`
)

// pruneAtOnce bounds what one transaction of Prune handles, and so does pruneLines where holds have many lines: every renewal of a lease waits for it.
const pruneLines = 512

// Prune implements [hold.Office]. It looks without any lock, and then forgets in transactions of a bounded size: an error says that some were not forgotten, and not that none was.
func (h *Holds) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := hold.CheckPrune(age, limit); err != nil {
		return 0, err
	}
	var ids []fence.ID
	err := h.read(ctx, "prune", func(b *holdBatch) error {
		return b.each(func(rows *sql.Rows) error {
			var id []byte
			err := rows.Scan(&id)
			ids = append(ids, asID(id))
			return err
		}, selectOver, b.now-int64(age), limit)
	})
	if err != nil {
		return 0, err
	}
	total := 0
	for len(ids) > 0 {
		some := ids[:min(len(ids), pruneAtOnce)]
		var handled, forgotten int
		err := h.write(ctx, "prune", fence.ID{}, len(some), func(b *holdBatch) (err error) {
			handled, forgotten, err = b.prune(some, age)
			return err
		})
		if err != nil {
			return 0, err // the writer may still be at work on it: handled is not even read
		}
		ids, total = ids[handled:], total+forgotten
	}
	return total, nil
}

// prune forgets the first of the holds that are still over by then, and returns how many it has looked at. One whose expiry nobody has noticed gives back what it holds first.
func (b *holdBatch) prune(ids []fence.ID, age time.Duration) (handled, forgotten int, err error) {
	lines := 0
	for _, id := range ids {
		if lines >= pruneLines {
			break
		}
		handled++
		r, err := b.find(id)
		if err != nil {
			return 0, 0, err
		}
		if r == nil || b.now-r.at < int64(age) {
			continue
		}
		if r.state == hold.Held {
			if err := b.end(r, hold.Expired, r.at, ""); err != nil {
				return 0, 0, err
			}
		}
		for _, statement := range []string{`DELETE FROM tenure_line WHERE hold = ?`, `DELETE FROM tenure_hold WHERE id = ?`} {
			if _, err := b.exec(statement, id[:]); err != nil {
				return 0, 0, err
			}
		}
		lines += len(r.lines)
		forgotten++
	}
	return handled, forgotten, nil
}
