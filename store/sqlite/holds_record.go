package sqlite

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// holdBatch is what a transaction does with holds.
type holdBatch struct {
	*txWork
	extra *int // lines that the writer's batch has handled beyond the weights of its requests; nil: nobody else waits for this transaction's end
}

// holdRecord is a row of tenure_hold with its lines.
type holdRecord struct {
	id         fence.ID
	actor      string
	lines      []hold.Line // summed, by name
	ttl        int64
	placed, at int64
	state      hold.State // as stored: see stateOf
	units      int64
	reference  string
}

// stateOf is how the hold stands: its time may have passed without anybody having noticed.
func (b *holdBatch) stateOf(r *holdRecord) hold.State {
	if r.state == hold.Held && b.now >= r.at {
		return hold.Expired
	}
	return r.state
}

const (
	holdColumns = `h.id, h.actor, h.ttl, h.placed, h.at, h.state, h.units, h.reference, l.item, l.quantity`
	selectHold  = `SELECT ` + holdColumns + ` FROM tenure_hold h CROSS JOIN tenure_line l ON l.hold = h.id WHERE h.id = ?1 ORDER BY l.item`
	selectHolds = `SELECT ` + holdColumns + ` FROM json_each(?1) j CROSS JOIN tenure_hold h ON h.id = unhex(j.value) CROSS JOIN tenure_line l ON l.hold = h.id ORDER BY h.id, l.item`
	selectItem  = `SELECT quantity, sold, held FROM tenure_item WHERE name = ?1`
	insertItem  = `INSERT INTO tenure_item (name, quantity, sold, held) VALUES (?1, ?2, 0, 0) ON CONFLICT (name) DO UPDATE SET quantity = ?2`
	moveItem    = `UPDATE tenure_item SET sold = sold + ?2, held = held + ?3 WHERE name = ?1`
	insertHold  = `INSERT INTO tenure_hold (id, actor, ttl, placed, at, state, units) VALUES (?, ?, ?, ?, ?, 1, ?)`
	insertLine  = `INSERT INTO tenure_line (hold, item, quantity, until, state) VALUES (?, ?, ?, ?, 1)`
	endHold     = `UPDATE tenure_hold SET state = ?3, at = ?4, reference = ?5 WHERE id = ?1 AND state = ?2`
	endLines    = `UPDATE tenure_line SET state = ?2, sole = ?2 = 2 AND (SELECT quantity FROM tenure_item WHERE name = item) = 1 WHERE hold = ?1`
	extendHold  = `UPDATE tenure_hold SET at = ?2 WHERE id = ?1 AND state = 1 AND at < ?2`
	extendLines = `UPDATE tenure_line SET until = ?2 WHERE hold = ?1`
)

// records reads holds with their lines, from rows that are ordered by both.
func (b *holdBatch) records(text string, arg any) ([]*holdRecord, error) {
	var found []*holdRecord
	err := b.each(func(rows *sql.Rows) error {
		r, l := new(holdRecord), hold.Line{}
		var id []byte
		if err := rows.Scan(&id, &r.actor, &r.ttl, &r.placed, &r.at, (*int)(&r.state), &r.units, &r.reference, &l.Item, &l.Quantity); err != nil {
			return err
		}
		if r.id = asID(id); len(found) == 0 || found[len(found)-1].id != r.id {
			found = append(found, r)
		}
		last := found[len(found)-1]
		last.lines = append(last.lines, l)
		return nil
	}, text, arg)
	return found, err
}

// find reads a hold, or nil.
func (b *holdBatch) find(id fence.ID) (*holdRecord, error) {
	found, err := b.records(selectHold, id[:])
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// findAll reads holds in the order of their ids; those that are gone are left out.
func (b *holdBatch) findAll(ids []fence.ID) ([]*holdRecord, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = hex.EncodeToString(id[:])
	}
	list, err := json.Marshal(texts)
	if err != nil {
		return nil, b.fail(err)
	}
	return b.records(selectHolds, string(list))
}

// load is find for a hold that must be known, and the actor's. It may answer with errAgain: holds of many lines do not crowd into one batch, though each has the weight of one.
func (b *holdBatch) load(id fence.ID, actor string) (*holdRecord, error) {
	r, err := b.find(id)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, &hold.NotFoundError{What: "hold", Name: id.String()}
	case r.actor != actor:
		return nil, &hold.ActorError{ID: id, Actor: actor}
	}
	if more := len(r.lines) - 1; b.extra != nil && more > 0 {
		if *b.extra > 0 && *b.extra+more > settleAtOnce {
			return nil, errAgain
		}
		*b.extra += more
	}
	return r, nil
}

// itemRow is a row of tenure_item.
type itemRow struct{ quantity, sold, held int64 }

// unsold is what the row alone shows to be free.
func (i *itemRow) unsold() int64 { return i.quantity - i.sold - i.held }

// item reads an item, or answers with a [*hold.NotFoundError].
func (b *holdBatch) item(name string) (i itemRow, err error) {
	err = b.conn.row(selectItem, name).Scan(&i.quantity, &i.sold, &i.held)
	if errors.Is(err, sql.ErrNoRows) {
		return i, &hold.NotFoundError{What: "item", Name: name}
	}
	if err != nil {
		return i, b.fail(err)
	}
	return i, nil
}

// insert writes a new hold and what it takes of its items.
func (b *holdBatch) insert(r *holdRecord) error {
	if err := b.one(insertHold, r.id[:], r.actor, r.ttl, r.placed, r.at, r.units); err != nil {
		return err
	}
	for _, l := range r.lines {
		if err := b.one(moveItem, l.Item, 0, l.Quantity); err != nil {
			return err
		}
		if err := b.one(insertLine, r.id[:], l.Item, l.Quantity, r.at); err != nil {
			return err
		}
	}
	return nil
}

// end writes how a hold ended, and moves the counters of its items: it is the only way out of state 1, and the only way into state 2.
func (b *holdBatch) end(r *holdRecord, state hold.State, at int64, reference string) error {
	for _, l := range r.lines {
		var sold, held int64
		if r.state == hold.Held {
			held = -l.Quantity
		}
		if state == hold.Confirmed {
			sold = l.Quantity
		}
		if sold == 0 && held == 0 {
			continue
		}
		if err := b.one(moveItem, l.Item, sold, held); err != nil {
			return err
		}
	}
	if err := b.one(endHold, r.id[:], int(r.state), int(state), at, reference); err != nil {
		return err
	}
	if _, err := b.exec(endLines, r.id[:], int(state)); err != nil {
		return err
	}
	r.state, r.at, r.reference = state, at, reference
	return nil
}

// tell makes of the record what may be told, which shares nothing with it.
func (b *holdBatch) tell(r *holdRecord) hold.Hold {
	h := hold.Hold{
		ID: r.id, Actor: r.actor, Lines: slices.Clone(r.lines), TTL: time.Duration(r.ttl), State: b.stateOf(r), Reference: r.reference, Age: time.Duration(b.now - r.placed),
	}
	if h.State == hold.Held {
		h.Left = time.Duration(r.at - b.now)
	} else {
		h.Ended = time.Duration(b.now - r.at)
	}
	return h
}
