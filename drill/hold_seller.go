package drill

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// roleSeller is a process that places holds and sells what they hold.
const roleSeller role = "seller"

// Where a seller stops itself.
const (
	pointChecked   point = "checked"   // it has looked, is told that the hold is live, and has sent nothing of the sale
	pointInside    point = "inside"    // in the sale's transaction, which has confirmed and has written no sale
	pointCommitted point = "committed" // the sale's transaction is committed, and nobody was told
)

// What a seller does that it should not.
const (
	mannerNaive       manner = "naive"        // its holds are a table of its own: it reads the expiry, and then writes
	mannerIgnoresLate manner = "ignores-late" // it writes the sale whatever the confirmation says
	mannerSilent      manner = "silent"       // it sends nothing late
	mannerTwoRows     manner = "two-rows"     // it writes the sale again where it repeats
)

// sellerSetup says what a seller does.
type sellerSetup struct {
	Manner manner `json:"manner,omitempty"`
}

// saleOrder is what a seller is to place or to sell.
type saleOrder struct {
	Hold      string `json:"hold"`
	Buyer     string `json:"buyer"`
	Reference string `json:"reference,omitempty"` // of the payment
	TTL       int64  `json:"ttl_ms,omitempty"`
	Stop      point  `json:"stop,omitempty"`
	Again     bool   `json:"again,omitempty"` // the payment is there: it does not look before it sells
	Late      bool   `json:"late,omitempty"`
}

// holdBackend is what a store keeps of holds.
type holdBackend interface {
	hold.Store
	hold.Office
}

// seller is a worker that sells seats.
type seller struct {
	*worker
	holds holdBackend
}

// serveSeller carries out what the conductor orders: to place, and to sell.
func (w *worker) serveSeller(ctx context.Context, in *bufio.Scanner) error {
	s := &seller{worker: w}
	defer w.close(ctx)
	if err := s.open(ctx); err != nil {
		return err
	}
	for {
		var c command
		if err := receive(in, &c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer, err := s.obey(ctx, c)
		answer.ID = c.ID
		if err != nil {
			answer.Err, answer.Code = err.Error(), lease.CodeOf(err)
		}
		if err := w.out.send(answer); err != nil {
			return err
		}
	}
}

func (s *seller) obey(ctx context.Context, c command) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	switch {
	case c.Op == opServe:
		return reply{}, nil
	case c.Sale == nil:
	case c.Op == opPlace:
		return s.place(ctx, *c.Sale)
	case c.Op == opSell:
		return s.sell(ctx, *c.Sale)
	}
	return reply{}, fmt.Errorf("%w: unknown order %q", ErrProcess, c.Op)
}

// open opens store and tables.
func (s *seller) open(ctx context.Context) (err error) {
	w := s.worker
	if w.now, _, err = clock.Kernel(); err != nil {
		return err
	}
	w.net = &faultyStore{now: w.now, faults: map[string]fault{}, times: map[string]int{}, told: func(heldTill) error { return nil }}
	w.site = w.place.site()
	if w.res, err = openResource(w.place, w.Run); err != nil {
		return err
	}
	return s.openHolds(ctx)
}

func (s *seller) openHolds(ctx context.Context) (err error) {
	if err = s.openStore(ctx); err == nil {
		s.holds, err = holdsOf(s.store)
	}
	return err
}

func (s *seller) naive() bool { return s.Sell.Manner == mannerNaive }

// place holds the seat for the buyer. What the store refuses is recorded, and told as an answer.
func (s *seller) place(ctx context.Context, o saleOrder) (reply, error) {
	var err error
	if s.naive() {
		err = s.placeNaively(ctx, o)
	} else {
		var id fence.ID
		if id, err = fence.ParseID(o.Hold); err != nil {
			return reply{}, err
		}
		_, err = s.holds.Place(ctx, hold.PlaceRequest{ID: id, Actor: o.Buyer, TTL: ofMillis(o.TTL), Lines: []hold.Line{{Item: seatOf(s.Run, s.Round), Quantity: 1}}})
	}
	if err == nil {
		return reply{Told: hold.Held.String()}, nil
	}
	if !errors.Is(err, hold.ErrTaken) && !errors.Is(err, hold.ErrUnavailable) {
		return reply{}, err
	}
	return reply{Told: err.Error()}, s.res.record(ctx, model.Answer{Round: s.Round, Writer: s.Name, Why: err.Error()})
}

// sell looks whether the hold is live, sells, and records what it was told. It stops where it is to.
func (s *seller) sell(ctx context.Context, o saleOrder) (reply, error) {
	if !o.Again {
		if err := s.look(ctx, o); err != nil {
			return reply{}, err
		}
	}
	if o.Stop == pointChecked {
		if err := s.halt(ctx); err != nil {
			return reply{}, err
		}
		o.Late = true
	}
	if o.Late && s.Sell.Manner == mannerSilent {
		return reply{Told: "nothing was sent"}, nil
	}
	wrote, told, err := s.commit(ctx, o)
	if err != nil {
		return reply{}, err
	}
	if o.Stop == pointCommitted {
		if err := s.halt(ctx); err != nil {
			return reply{}, err
		}
	}
	answer := model.Answer{Round: s.Round, Writer: s.Name, Element: o.Reference, Late: o.Late, Accepted: wrote, Why: told}
	return reply{Told: told}, s.res.record(ctx, answer)
}

// look is the check before the sale.
func (s *seller) look(ctx context.Context, o saleOrder) error {
	if s.naive() {
		return s.lookNaively(ctx, o)
	}
	id, err := fence.ParseID(o.Hold)
	if err != nil {
		return err
	}
	h, err := s.holds.Get(ctx, id)
	if err == nil && h.State != hold.Held {
		err = s.tooSlow(fmt.Sprintf("the hold is %v before its sale has begun", h.State))
	}
	return err
}

// halt stops this process. On a file, the store is shut down for that time: see [worker.stopOutsideWrites].
func (s *seller) halt(ctx context.Context) error {
	shut := s.site.traits().stopsOthers
	if shut {
		if err := s.store.Shutdown(ctx); err != nil {
			return err
		}
	}
	if err := s.stop(ctx); err != nil || !shut {
		return err
	}
	return s.openHolds(ctx)
}

// commit is the sale's transaction: it confirms, and writes the sale if it is sold and not written yet. told is what the store has said.
func (s *seller) commit(ctx context.Context, o saleOrder) (wrote bool, told string, err error) {
	if s.naive() {
		return true, "sold", s.commitNaively(ctx, o)
	}
	id, err := fence.ParseID(o.Hold)
	if err != nil {
		return false, "", err
	}
	req := hold.ConfirmRequest{ID: id, Actor: o.Buyer, Reference: o.Reference}
	err = s.res.inTx(ctx, func(tx *sql.Tx) error {
		h, err := confirmSale(ctx, s.store, tx, req)
		if err != nil {
			return err
		}
		told, wrote = h.State.String(), false
		if h.State != hold.Confirmed && s.Sell.Manner != mannerIgnoresLate {
			return nil
		}
		if o.Stop == pointInside {
			if err := s.stop(ctx); err != nil {
				return err
			}
		}
		wrote, err = s.write(ctx, tx, o)
		return err
	})
	if refused := refusedSale(err); refused {
		return false, err.Error(), nil
	}
	return wrote, told, err
}

// refusedSale reports whether the store has refused the confirmation for what has happened to the hold.
func refusedSale(err error) bool {
	for _, kind := range []error{hold.ErrMismatch, hold.ErrOver, hold.ErrActor, hold.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// write writes the sale, once for a hold. That nobody does so at the same time is what the confirmation makes sure of: it has locked the seat.
func (s *seller) write(ctx context.Context, tx *sql.Tx, o saleOrder) (bool, error) {
	text := `INSERT INTO [sale] (round, hold, buyer, reference) SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM [sale] WHERE hold = ?2)`
	if s.Sell.Manner == mannerTwoRows {
		text = `INSERT INTO [sale] (round, hold, buyer, reference) VALUES (?1, ?2, ?3, ?4)`
	}
	result, err := tx.ExecContext(ctx, s.res.sql(text), s.Round, o.Hold, o.Buyer, o.Reference)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// placeNaively holds the seat in a table of the application's own.
func (s *seller) placeNaively(ctx context.Context, o saleOrder) error {
	return s.res.inTx(ctx, func(tx *sql.Tx) error {
		var until int64
		var sold bool
		err := tx.QueryRowContext(ctx, s.res.sql(`SELECT until_ns, sold FROM [seat] WHERE round = ?1`), s.Round).Scan(&until, &sold)
		if err == nil && (sold || int64(s.now()) < until) {
			return &hold.TakenError{Item: seatOf(s.Run, s.Round), Wanted: 1, Next: time.Duration(until) - s.now()}
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = tx.ExecContext(ctx, s.res.sql(`INSERT INTO [seat] (round, hold, buyer, until_ns, sold) VALUES (?1, ?2, ?3, ?4, false)
			ON CONFLICT (round) DO UPDATE SET hold = ?2, buyer = ?3, until_ns = ?4`), s.Round, o.Hold, o.Buyer, int64(s.now()+ofMillis(o.TTL)))
		return err
	})
}

// lookNaively reads the expiry.
func (s *seller) lookNaively(ctx context.Context, o saleOrder) error {
	var held string
	var until int64
	err := s.res.db.QueryRowContext(ctx, s.res.sql(`SELECT hold, until_ns FROM [seat] WHERE round = ?1`), s.Round).Scan(&held, &until)
	if err == nil && (held != o.Hold || int64(s.now()) >= until) {
		err = s.tooSlow("the hold is over before its sale has begun")
	}
	return err
}

// commitNaively sells what was looked at.
func (s *seller) commitNaively(ctx context.Context, o saleOrder) error {
	return s.res.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.res.sql(`UPDATE [seat] SET sold = true, buyer = ?2 WHERE round = ?1`), s.Round, o.Buyer); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.res.sql(`INSERT INTO [sale] (round, hold, buyer, reference) VALUES (?1, ?2, ?3, ?4)`), s.Round, o.Hold, o.Buyer, o.Reference)
		return err
	})
}
