package sqlite

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// settleAtOnce is how many lines a batch of the writer handles beyond the weights of its requests, those of expired holds that it frees above all, because every renewal of a lease waits for it.
const settleAtOnce = 256

const (
	// expiredOf is what expired holds, not noticed yet, hold of an item, of ?3 lines at most. A line has a unit at least, so more lines than units are needed never are.
	expiredOf = `SELECT coalesce(sum(quantity), 0) FROM (SELECT quantity FROM tenure_line WHERE item = ?1 AND state = 1 AND until <= ?2 ORDER BY until LIMIT ?3)`
	// firstExpired are the holds with these lines.
	firstExpired = `SELECT hold FROM tenure_line WHERE item = ?1 AND state = 1 AND until <= ?2 ORDER BY until LIMIT ?3`
	nextExpiry   = `SELECT until FROM tenure_line WHERE item = ?1 AND state = 1 AND until > ?2 ORDER BY until LIMIT 1`
	// hintHold compares the rows alone.
	hintHold    = `SELECT EXISTS (SELECT 1 FROM json_each(?1) j LEFT JOIN tenure_item i ON i.name = j.value ->> 0 WHERE coalesce(i.quantity - i.sold - i.held, -1) < j.value ->> 1)`
	heldByActor = `SELECT count(*), coalesce(sum(units), 0) FROM tenure_hold WHERE actor = ?1 AND state = 1 AND at > ?2`
)

// check returns a [*hold.TakenError] unless there is room for so many units of the item. It reads only.
func (b *holdBatch) check(name string, i itemRow, wanted int64) error {
	missing := wanted - i.unsold()
	if missing <= 0 {
		return nil
	}
	var expired int64
	if err := b.conn.row(expiredOf, name, b.now, missing).Scan(&expired); err != nil {
		return b.fail(err)
	}
	if expired >= missing {
		return nil
	}
	next, err := b.next(name)
	if err != nil {
		return err
	}
	return &hold.TakenError{Item: name, Wanted: wanted, Free: i.unsold() + expired, Next: next}
}

// next is when the first live hold on the item expires, or 0.
func (b *holdBatch) next(name string) (time.Duration, error) {
	var until int64
	err := b.conn.row(nextExpiry, name, b.now).Scan(&until)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, b.fail(err)
	}
	return time.Duration(until - b.now), nil
}

// checkAll is check for all lines.
func (b *holdBatch) checkAll(lines []hold.Line) error {
	for _, l := range lines {
		i, err := b.item(l.Item)
		if err == nil {
			err = b.check(l.Item, i, l.Quantity)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fit writes the expiry of so many holds that there is room for the units by the item's row alone. There must be room: see check. It may answer with errAgain.
func (b *holdBatch) fit(name string, wanted int64) error {
	for {
		i, err := b.item(name)
		if err != nil || i.unsold() >= wanted {
			return err
		}
		most := min(wanted-i.unsold(), settleAtOnce)
		if b.extra != nil {
			if most = min(most, settleAtOnce-int64(*b.extra)); most <= 0 {
				return errAgain
			}
		}
		n, err := b.settle(name, most)
		if err != nil {
			return err
		}
		if n == 0 { // the counter and the lines of a sound file agree
			return b.fail(affectedError(0))
		}
	}
}

// settle writes the expiry of at most so many holds on the item, the longest over first.
func (b *holdBatch) settle(name string, most int64) (int, error) {
	var ids []fence.ID
	err := b.each(func(rows *sql.Rows) error {
		var id []byte
		err := rows.Scan(&id)
		ids = append(ids, asID(id))
		return err
	}, firstExpired, name, b.now, most)
	if err != nil {
		return 0, err
	}
	for n, id := range ids {
		r, err := b.find(id)
		if err != nil {
			return 0, err
		}
		if b.extra != nil {
			if n > 0 && *b.extra >= settleAtOnce { // holds of many lines
				return n, nil
			}
			*b.extra += len(r.lines)
		}
		if err := b.end(r, hold.Expired, r.at, ""); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// decide is the whole of a placement but its writes: the hold that is known under the id, or none and nil if a new one may be placed.
func (b *holdBatch) decide(req *hold.PlaceRequest, lines []hold.Line) (*holdRecord, error) {
	r, err := b.find(req.ID)
	if err != nil {
		return nil, err
	}
	if r != nil {
		return r, b.again(req, lines, r)
	}
	items := make([]itemRow, len(lines))
	for n, l := range lines {
		if items[n], err = b.item(l.Item); err != nil {
			return nil, err
		}
	}
	if err := b.limits(req, lines); err != nil {
		return nil, err
	}
	for n, l := range lines {
		if err := b.check(l.Item, items[n], l.Quantity); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// again answers a request whose id is known.
func (b *holdBatch) again(req *hold.PlaceRequest, lines []hold.Line, r *holdRecord) error {
	switch {
	case r.actor != req.Actor:
		return &hold.MismatchError{ID: req.ID, What: "actor"}
	case !slices.Equal(r.lines, lines):
		return &hold.MismatchError{ID: req.ID, What: "lines"}
	case r.ttl != int64(req.TTL):
		return &hold.MismatchError{ID: req.ID, What: "ttl"}
	}
	if state := b.stateOf(r); state != hold.Held && state != hold.Confirmed {
		return &hold.OverError{ID: req.ID, State: state, What: "placing it again"}
	}
	return nil
}

func unitsOf(lines []hold.Line) (n int64) {
	for _, l := range lines {
		n += l.Quantity
	}
	return n
}

func (b *holdBatch) limits(req *hold.PlaceRequest, lines []hold.Line) error {
	if req.MaxHolds == 0 && req.MaxUnits == 0 {
		return nil
	}
	var holds, units int64
	if err := b.conn.row(heldByActor, req.Actor, b.now).Scan(&holds, &units); err != nil {
		return b.fail(err)
	}
	switch {
	case req.MaxHolds > 0 && holds >= req.MaxHolds:
		return &hold.LimitError{Actor: req.Actor, What: "holds", Most: req.MaxHolds, Live: holds}
	case req.MaxUnits > 0 && units+unitsOf(lines) > req.MaxUnits:
		return &hold.LimitError{Actor: req.Actor, What: "units", Most: req.MaxUnits, Live: units}
	}
	return nil
}

func (b *holdBatch) place(req *hold.PlaceRequest, lines []hold.Line) (hold.Hold, error) {
	r, err := b.decide(req, lines)
	if err != nil {
		return hold.Hold{}, err
	}
	if r != nil {
		return b.tell(r), nil
	}
	for _, l := range lines { // all of them before anything of the hold is written: errAgain commits what was written
		if err := b.fit(l.Item, l.Quantity); err != nil {
			return hold.Hold{}, err
		}
	}
	r = &holdRecord{id: req.ID, actor: req.Actor, lines: lines, ttl: int64(req.TTL), placed: b.now, at: b.now + int64(req.TTL), state: hold.Held, units: unitsOf(lines)}
	if err := b.insert(r); err != nil {
		return hold.Hold{}, err
	}
	return b.tell(r), nil
}

func (b *holdBatch) extend(id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	r, err := b.load(id, actor)
	if err != nil {
		return hold.Hold{}, err
	}
	if state := b.stateOf(r); state != hold.Held {
		return hold.Hold{}, &hold.OverError{ID: id, State: state, What: "extending it"}
	}
	if at := b.now + int64(ttl); at > r.at {
		if err := b.one(extendHold, id[:], at); err != nil {
			return hold.Hold{}, err
		}
		if _, err := b.exec(extendLines, id[:], at); err != nil {
			return hold.Hold{}, err
		}
		r.at = at
	}
	return b.tell(r), nil
}

func (b *holdBatch) confirm(req *hold.ConfirmRequest) (hold.Hold, error) {
	r, err := b.load(req.ID, req.Actor)
	if err != nil {
		return hold.Hold{}, err
	}
	switch state := b.stateOf(r); state {
	case hold.Confirmed, hold.Late:
		if r.reference != req.Reference {
			return hold.Hold{}, &hold.MismatchError{ID: req.ID, What: "reference"}
		}
		return b.tell(r), nil
	case hold.Released:
		return hold.Hold{}, &hold.OverError{ID: req.ID, State: state, What: "confirming it"}
	case hold.Held:
		err = b.end(r, hold.Confirmed, b.now, req.Reference)
	case hold.Expired:
		err = b.confirmExpired(r, req)
	}
	if err != nil {
		return hold.Hold{}, err
	}
	return b.tell(r), nil
}

// confirmExpired records a payment that came late. It sells only within the grace, and only where all of it is free.
func (b *holdBatch) confirmExpired(r *holdRecord, req *hold.ConfirmRequest) error {
	if b.now-r.at >= int64(req.Grace) {
		return b.end(r, hold.Late, b.now, req.Reference)
	}
	if r.state == hold.Held { // it holds nothing any more, and must not stand in its own way
		if err := b.end(r, hold.Expired, r.at, ""); err != nil {
			return err
		}
	}
	if err := b.checkAll(r.lines); err != nil {
		if errors.Is(err, hold.ErrTaken) {
			return b.end(r, hold.Late, b.now, req.Reference)
		}
		return err
	}
	for _, l := range r.lines {
		if err := b.fit(l.Item, l.Quantity); err != nil {
			return err
		}
	}
	return b.end(r, hold.Confirmed, b.now, req.Reference)
}

func (b *holdBatch) release(id fence.ID, actor string) (hold.Hold, error) {
	r, err := b.load(id, actor)
	if err != nil {
		return hold.Hold{}, err
	}
	switch state := b.stateOf(r); state {
	case hold.Confirmed, hold.Late:
		return hold.Hold{}, &hold.OverError{ID: id, State: state, What: "releasing it"}
	case hold.Held:
		err = b.end(r, hold.Released, b.now, "")
	case hold.Released, hold.Expired:
	}
	if err != nil {
		return hold.Hold{}, err
	}
	return b.tell(r), nil
}

// stock sets the quantities of items that are in the order of their names.
func (b *holdBatch) stock(items []hold.Item) error {
	known := make([]bool, len(items))
	for n, i := range items {
		row, err := b.item(i.Name)
		if errors.Is(err, hold.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		known[n] = true
		row.quantity = i.Quantity
		if err := b.check(i.Name, row, 0); err != nil {
			if taken, ok := errors.AsType[*hold.TakenError](err); ok {
				taken.Wanted, taken.Free = i.Quantity-taken.Free, i.Quantity
			}
			return err
		}
	}
	for n, i := range items {
		if known[n] {
			if err := b.fitQuantity(i); err != nil {
				return err
			}
		}
	}
	for _, i := range items {
		if err := b.one(insertItem, i.Name, i.Quantity); err != nil {
			return err
		}
	}
	return nil
}

// fitQuantity makes room for the item to have no more than that.
func (b *holdBatch) fitQuantity(i hold.Item) error {
	row, err := b.item(i.Name)
	if err != nil {
		return err
	}
	return b.fit(i.Name, row.quantity-i.Quantity)
}

// byName are the items in the order of their names.
func byName(items []hold.Item) []hold.Item {
	return slices.SortedFunc(slices.Values(items), func(a, b hold.Item) int { return strings.Compare(a.Name, b.Name) })
}
